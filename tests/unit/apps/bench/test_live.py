"""Loaded pairs as the bench's machine: what is loaded, and what a sample says of its rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.bench import SETTINGS
from fakes.drafting import open_session
from specdec_cli.apps.bench.live import LiveMachine, load_machine
from specdec_cli.apps.bench.result import Condition, Contender
from specdec_cli.apps.bench.sweep import BenchRequest
from specdec_cli.core.events import RoundDone
from specdec_cli.core.request import Request
from specdec_cli.measure.prompts import BenchPrompt
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.pair import Pair

COPY = BenchPrompt("edit", "fish", "one fish, two fish, red fish, blue fish, one fish, two fish, red fish, blue fish")


@pytest.fixture(scope="module")
def demo():
    return open_session(registry().find("demo"))


class Live(LiveMachine):
    """Answers of so many tokens."""

    def __init__(self, session, tokens=28, fixed=False):
        settings = replace(SETTINGS, seed=7, raw=True, ends="fixed" if fixed else "natural")
        super().__init__(
            {session.pair.names[1]: session},
            BenchRequest(session.pair.pair, settings, (), ("model",), (), False),
        )
        self.tokens = tokens

    def answer(self, arm, prompt):
        return super().answer(arm, prompt, self.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_a_sample_counts_what_its_rounds_drafted_and_accepted(demo, drafter):
    live = Live(demo, fixed=True)
    sample = live.answer(
        Condition(Contender(drafter, demo.pair.names[1] if drafter == "model" else None), 0.0).arm(3), COPY
    )
    demo.slot.forget()
    asked = Request(28, k=3, drafter=drafter, seed=7, sampling={"temperature": 0.0})
    rounds = [
        e.round for e in demo.reply(demo.pair.text_tokens(COPY.text), asked, raw=True) if isinstance(e, RoundDone)
    ]
    assert sample.drafted_at == tuple(sum(len(r.draft) > j for r in rounds) for j in range(3))
    assert sum(sample.accepted_at) == sample.draft_n_accepted == sum(r.accepted for r in rounds)
    assert sample.rejected_n == sum(r.accepted < len(r.draft) for r in rounds) and sample.emitted_tokens == 28


@pytest.mark.slow
def test_fixed_length_answers_never_stop(tiny_pair):
    target, draft = map(str, tiny_pair)
    session = open_session(Pair("tiny", target, draft))
    live = Live(session, tokens=60, fixed=True)
    hot = Condition(Contender("model"), 1.5).arm(0)
    lengths = {live.answer(hot, BenchPrompt("code", f"{n}", f"def f{n}(")).emitted_tokens for n in range(20)}
    assert lengths == {60}


@pytest.fixture
def request_of_tiny(tiny_pair):
    pair = Pair("tiny", *map(str, tiny_pair))
    settings = replace(SETTINGS, raw=True, max_tokens=8)
    return BenchRequest(pair, settings, (), ("model", "ngram"), (BenchPrompt("code", "one", "def f("),))


def test_who_drafts_is_paired_with_what_it_needs(request_of_tiny, tiny_pair):
    machine = load_machine(request_of_tiny, lambda: False)
    assert [(one.drafter, one.draft) for one in machine.contenders] == [("model", str(tiny_pair[1])), ("ngram", None)]
    assert machine.environment.caches == {"target": ("KVCache",)} and machine.environment.dtype == "float32"
    assert {"specdec", "python", "mlx", "mlx-lm"} <= set(machine.environment.versions)
    assert machine.fitting(request_of_tiny.prompts, 8) == list(request_of_tiny.prompts)


def test_a_second_draft_shares_the_targets_weights(request_of_tiny, tiny_pair, tmp_path):
    other = tmp_path / "other"
    other.symlink_to(tiny_pair[1])
    machine = load_machine(replace(request_of_tiny, drafts=(str(other),), drafters=("model",)), lambda: False)
    assert len(machine.contenders) == 2
    first, second = machine._sessions.values()
    assert first.slot.target is second.slot.target and first.slot.draft is not second.slot.draft
