"""Loaded pairs as the bench's machine: what is loaded, and what a sample says of its rounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes.drafting import open_session
from specdec_cli.bench.live import AnswerSettings, LiveMachine, load_machine, plain_tokens
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Arm, Contender, plain
from specdec_cli.bench.sweep import BenchRequest
from specdec_cli.events import RoundDone
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Constraint, Request

CODE = BenchPrompt("code", "lines", "def read_lines(path):\n    with open(path) as handle:\n        return [line")
COPY = BenchPrompt("edit", "fish", "one fish, two fish, red fish, blue fish, one fish, two fish, red fish, blue fish")
PROMPT = [*range(5, 25)] * 2


@pytest.fixture(scope="module")
def demo():
    return open_session(registry().find("demo"))


def machine(session, tokens=28, rule="auto", fixed=False, constraint=None):
    settings = AnswerSettings(tokens, rule, 7, True, fixed, constraint)
    return LiveMachine({session.names[1]: session}, settings, lambda: False)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_a_sample_counts_what_its_rounds_drafted_and_accepted(demo, drafter):
    live = machine(demo, fixed=True)
    arm = Arm(Contender(drafter, demo.names[1] if drafter == "model" else None), 0.0, 3)
    sample = live.answer(arm, COPY)
    demo.slot.forget()
    events = demo.reply(live._tokens(COPY), live._request(arm), raw=True)
    rounds = [event.round for event in events if isinstance(event, RoundDone)]
    assert sample.drafted_at == tuple(sum(len(r.draft) > j for r in rounds) for j in range(3))
    assert sum(sample.accepted_at) == sample.draft_n_accepted == sum(r.accepted for r in rounds)
    assert sample.rejected_n == sum(r.accepted < len(r.draft) for r in rounds) and sample.emitted_tokens == 28


@pytest.mark.slow
def test_what_a_full_round_costs_is_the_median_of_its_rounds(demo):
    live = machine(demo, fixed=True)
    drafted = live.answer(Arm(Contender("model", demo.names[1]), 0.0, 2), CODE)
    assert 0 < drafted.round_verify_seconds < drafted.verify_seconds
    assert 0 < drafted.round_draft_seconds < drafted.draft_seconds
    assert live.answer(plain(0.0), CODE).round_verify_seconds is None
    assert live.answer(Arm(Contender("model", demo.names[1]), 0.0, "auto"), CODE).round_verify_seconds is None


@pytest.mark.slow
def test_the_warm_up_ends_with_its_time_and_leaves_the_length_of_answers_alone(demo):
    live, asked = machine(demo), []
    live.answer = lambda arm, prompt, answer=live.answer: (asked.append(arm.k), answer(arm, prompt))[1]
    arms = [plain(0.0), *(Arm(Contender("model", demo.names[1]), 0.0, k) for k in (2, 4))]
    prefill, step = live.warm_up(CODE, arms, 0.0)
    assert asked == [0] and prefill > 0 and step > 0
    live.warm_up(CODE, arms, 1000.0)
    assert asked[1:] == [0, 2, 4, 0] and live.settings.max_tokens == 28


@pytest.mark.parametrize("sampling", [{}, {"repetition_penalty": 1.3}])
def test_the_baseline_says_what_the_product_says_without_a_draft(tiny_pair, tmp_path, sampling):
    target, draft = tiny_pair
    tuned = tmp_path / "target"
    tuned.mkdir()
    for file in target.iterdir():
        (tuned / file.name).write_bytes(file.read_bytes())
    (tuned / "generation_config.json").write_text(json.dumps(sampling))
    session = open_session(Pair("tiny", str(tuned), str(draft)))
    request = Request(max_tokens=16, k=0)
    said = [t for e in session.reply(PROMPT, request) if isinstance(e, RoundDone) for t in e.round.emitted]
    session.slot.forget()
    assert list(plain_tokens(session, PROMPT, request)) == said


@pytest.mark.slow
def test_fixed_length_answers_never_stop(tiny_pair):
    target, draft = map(str, tiny_pair)
    session = open_session(Pair("tiny", target, draft))
    live = machine(session, tokens=60, fixed=True)
    lengths = {live.answer(plain(1.5), BenchPrompt("code", f"{n}", f"def f{n}(")).emitted_tokens for n in range(20)}
    assert lengths == {60}


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_under_a_shape_the_baseline_has_it_too_and_every_answer_is_as_long(demo, temperature):
    live = machine(demo, constraint=Constraint("regex", "[a-z_]{4,9}( = [0-9]{2}){2}"))
    held = Contender("model", demo.names[1], constrained=True)
    arms = [Arm(held, temperature, k) for k in (2, "auto")] + [Arm(Contender("ngram", None, True), temperature, 3)]
    samples = [live.answer(arm, CODE) for arm in (*arms, plain(temperature))]
    assert len({sample.emitted_tokens for sample in samples}) == 1
    assert {sample.finish for sample in samples} == {"stop"}


REQUEST = BenchRequest(
    pair=Pair("tiny", "t", "d"),
    named=True,
    drafts=(),
    drafters=("model", "ngram"),
    ks=(1, 2),
    temperatures=(0.0,),
    rule="auto",
    seed=0,
    prompts=(BenchPrompt("code", "one", "def f("),),
    source="",
    max_tokens=8,
    raw=True,
    fixed_length=False,
    budget_seconds=1.0,
    cooldown_seconds=0.0,
    force=False,
)


@pytest.fixture
def request_of_tiny(tiny_pair):
    return replace(REQUEST, pair=Pair("tiny", *map(str, tiny_pair)))


def test_who_drafts_is_paired_with_what_it_needs(request_of_tiny, tiny_pair):
    machine, subjects = load_machine(request_of_tiny, lambda: False)
    assert [(one.drafter, one.draft) for one in subjects.contenders] == [("model", str(tiny_pair[1])), ("ngram", None)]
    assert subjects.environment.caches == {"target": ("KVCache",)} and subjects.environment.dtype == "float32"
    assert {"specdec", "python", "mlx", "mlx-lm"} <= set(subjects.environment.versions)
    assert machine.fitting(request_of_tiny.prompts, 8) == list(request_of_tiny.prompts)


def test_a_second_draft_shares_the_targets_weights(request_of_tiny, tiny_pair, tmp_path):
    other = tmp_path / "other"
    other.symlink_to(tiny_pair[1])
    machine, subjects = load_machine(replace(request_of_tiny, drafts=(str(other),), drafters=("model",)), lambda: False)
    assert len(subjects.contenders) == 2
    first, second = machine._sessions.values()
    assert first.slot.target is second.slot.target and first.slot.draft is not second.slot.draft


def test_without_a_drafting_model_no_draft_is_loaded(request_of_tiny):
    machine, subjects = load_machine(replace(request_of_tiny, drafters=("ngram",)), lambda: False)
    assert [(one.drafter, one.draft) for one in subjects.contenders] == [("ngram", None)]
    assert next(iter(machine._sessions.values())).slot.draft is None
