"""The whole bench on simulated machines whose best K is known, and loaded pairs as its machine."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from math import exp
from random import Random

import pytest

from fakes.bench import HERE, SETTINGS, Simulated, Texts, run_bench, true_log_speedups
from fakes.drafting import open_session
from fakes.machine import BY_NAME, MACHINES
from specdec_cli.apps.bench.estimate import arms_of, estimates, recommend
from specdec_cli.apps.bench.live import LiveMachine, load_machine
from specdec_cli.apps.bench.report import reports
from specdec_cli.apps.bench.result import Condition, Contender
from specdec_cli.apps.bench.sentences import command, conclusion
from specdec_cli.apps.bench.sweep import BenchRequest, in_turns, tokens_within
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.events import RoundDone
from specdec_cli.core.request import Request
from specdec_cli.measure.prompts import SamplePrompt
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.pair import Pair, PairSpec

M4 = BY_NAME["M4 Pro (mlx 3852)"]
KS = tuple(range(9))
MANY_KINDS = Texts({"code": 0.82, "chat": 0.7, "prose": 0.6, "json": 0.8, "edit": 0.93}, tokens=64)


def bench(machine, texts, seed, budget=70.0, each=20, ks=KS, **faults):
    found = Simulated(machine, tokens=texts.tokens, seed=seed, **faults)
    asked = {"budget_seconds": budget, "seed": seed, "ks": ks, "max_tokens": texts.tokens}
    return run_bench(found, texts.prompts(each, seed), **asked), found


def known(done, condition=HERE, ks=KS):
    return estimates(arms_of(condition, ks), done.samples)


def prompts_of(done):
    return list(dict.fromkeys(sample.prompt for sample in done.samples))


@lru_cache
def truth(machine):
    found = true_log_speedups(Simulated(machine), replace(TEXTS, tokens=64), [HERE.arm(k) for k in KS], 100)
    return {arm.k: value for arm, value in found.items()}


def test_every_answer_has_a_baseline_beside_it_in_a_random_order():
    done, _ = bench(M4, MANY_KINDS, 3)
    blocks = {}
    for sample in done.samples:
        if sample.phase == "confirm":
            blocks.setdefault(sample.prompt, []).append(sample.arm.k)
    assert all(ks.count(0) == 1 and len(set(ks)) == len(ks) for ks in blocks.values())
    places = Counter(ks.index(0) for ks in blocks.values())
    assert len(places) > 1 and max(places.values()) < 0.8 * len(blocks)
    again, _ = bench(M4, MANY_KINDS, 3)
    assert again.samples == done.samples, "the order comes from the seed"


def test_an_interrupted_bench_keeps_what_it_has_and_one_cut_in_its_warm_up_measures_nothing():
    whole, _ = bench(M4, MANY_KINDS, 4)
    cut, machine = bench(M4, MANY_KINDS, 4, cancel_after=30.0)
    assert cut.result().partial and not whole.result().partial and cut.result().seconds == machine.clock()
    assert cut.samples == whole.samples[: len(cut.samples)] and 0 < len(cut.samples) < len(whole.samples)
    assert bench(M4, MANY_KINDS, 4, cancel_after=0.01)[0].samples == []


def test_cooling_down_comes_before_every_answer():
    machine = Simulated(M4, tokens=64)
    done = run_bench(machine, MANY_KINDS.prompts(8, 0), cooldown_seconds=1.5, budget_seconds=80.0)
    assert machine.slept == 1.5 * len(done.samples) and machine.clock() < 82


def test_the_first_prompts_are_measured_with_two_arms_however_little_time_there_is():
    done, _ = bench(M4, MANY_KINDS, 0, budget=1.0, ks=(*KS, "auto"))
    ks = [sorted(map(str, {s.arm.k for s in done.samples if s.prompt == at})) for at in prompts_of(done)]
    assert ks == [["0", "2", "auto"]] * 3
    assert recommend(HERE, known(done, ks=(*KS, "auto"))).answer != "unknown"


def test_prompts_come_one_of_each_kind_in_turn_and_in_an_order_of_the_seed():
    things = [*Texts({"a": 0.5, "b": 0.5, "c": 0.5}).prompts(4, 0), *Texts({"d": 0.5}).prompts(1, 0)]
    found = in_turns(things, Random(5))
    assert [thing.kind for thing in found] == [*"abcd", *"abc", *"abc", *"abc"]
    assert sorted(found, key=things.index) == things
    assert found == in_turns(things, Random(5)) != in_turns(things, Random(6))


def test_answers_are_as_long_as_the_budget_allows_unless_a_length_was_requested():
    assert [tokens_within(120, *costs) for costs in ((0.1, 0.005, 1), (0.3, 0.04, 1), (0.3, 0.02, 2), (5, 0.5, 1))] == [
        128, 55, 47, 24,
    ]  # fmt: skip
    texts = Texts({"code": 0.8, "chat": 0.6}).prompts(6, 1)
    free, fixed = (
        run_bench(Simulated(M4, 128), texts, max_tokens=tokens, budget_seconds=60.0).result() for tokens in (0, 50)
    )
    assert 24 <= free.settings.max_tokens < 96 and fixed.settings.max_tokens == 50


def test_prompts_are_counted_and_those_without_room_are_left_out_with_a_notice():
    texts, told = Texts({"code": 0.8, "chat": 0.6}).prompts(6, 1), []
    assert run_bench(Simulated(M4), texts).result().settings.prompts == "12 bundled prompts of 2 kinds"
    few = run_bench(Simulated(M4, fit=1), texts, tell=told.append, prompts="mine.txt").result()
    assert few.settings.prompts == "1 prompt of mine.txt"
    assert told[0] == "11 of 12 prompts leave no room for 96 tokens: left out" and few.settings.kinds == ("code",)
    with pytest.raises(DoesNotFit, match="the only prompt leaves no room for 96 tokens"):
        run_bench(Simulated(M4, fit=0), texts[:1])


def test_a_machine_too_slow_for_the_budget_says_first_how_long_it_takes_and_ends_with_an_answer():
    """The bug: `specdec bench` ended with "no recommendation" and the advice to spend six minutes."""
    slow, told, steps = Simulated(replace(M4, plain_seconds=1.0), prefill_steps=15.0), [], []
    texts = Texts({"code": 0.8, "chat": 0.6}).prompts(6, 1)
    asked = {"max_tokens": 0, "budget_seconds": 60.0, "ks": (0, 1, 2, 4)}
    result = run_bench(slow, texts, steps.append, told.append, **asked).result()
    assert len({step.note.partition(" left")[0] for step in steps}) > 9  # it goes down with each answer
    (sentence,) = told
    minutes = re.fullmatch(r"this machine is slow: 3 prompts take about (\d+) min, over --time-budget", sentence)[1]
    assert slow.clock() / 60 < int(minutes) < 1.6 * slow.clock() / 60
    assert slow.clock() > 60 and not result.partial and len(result.samples) == 9
    assert {sample.emitted_tokens for sample in result.samples} == {24}
    assert reports(result)[0].recommendation.answer != "unknown"
    quick = Simulated(M4)
    run_bench(quick, texts, tell=told.append, max_tokens=0, budget_seconds=60.0)
    assert len(told) == 1 and quick.clock() < 61


# The whole bench as typed without an option, from request to answer, on machines of every speed.

TEXTS = Texts({"code": 0.82, "chat": 0.7, "prose": 0.6, "summary": 0.72, "json": 0.8, "edit": 0.93}, tokens=128)
AUTO_LOSES = 0.045


class Unmoved(Simulated):
    """No K is faster or slower than plain decoding, but for luck."""

    def steps(self, arm, prompt, tokens):
        steps, rounds = super().steps(arm, prompt, tokens)
        luck = random.Random(f"{prompt.text} {arm.k}").gauss(0, 0.1)
        return (tokens - 1.0) * exp(luck) if arm.k else steps, rounds


def default_bench(kind, machine, rate, seed, noise, prefill_steps, auto=0):
    found = kind(
        replace(machine, plain_seconds=1 / rate), 128, seed=seed, noise=noise, auto=auto, prefill_steps=prefill_steps
    )
    done = run_bench(found, TEXTS.prompts(8, seed), budget_seconds=120.0, seed=seed, max_tokens=0)
    (report,) = reports(done.result())
    return report, found


@pytest.mark.full
@pytest.mark.parametrize("rate", [1, 10, 100])
@pytest.mark.parametrize(("noise", "prefill_steps"), [(0.05, 4.0), (0.2, 15.0)], ids=["calm", "noisy, slow to read"])
def test_every_machine_gets_an_answer_in_time_and_nearly_always_a_good_one(rate, noise, prefill_steps):
    """48 benches a case, six seeds on each of eight chips; of each, `auto` gives up 4 %. The bug: no answer at all.

    Good is within 5 % of the best K: so in at least 75 % of the benches, and at most 5 % are lost on the average.
    """
    lost, over = [], []
    for machine in MACHINES:
        true = truth(machine)
        best = max(true, key=true.get)
        for seed in range(6):
            report, found = default_bench(Simulated, machine, rate, seed, noise, prefill_steps, auto=best)
            advice = report.recommendation
            assert advice.answer != "unknown" and advice.speedup.prompts >= 3
            assert "budget" not in conclusion(report) + command(report)
            lost.append(
                true[best] - (true[best] - AUTO_LOSES * (best > 0) if advice.chosen == "auto" else true[advice.chosen])
            )
            fewest = 3 * 3 * (prefill_steps + 24) / rate
            over.append(found.clock() / max(120.0, fewest + (prefill_steps + 23) / rate))
    assert max(over) < 1.15, "the budget, or what the least of it takes"
    assert sum(one < 0.05 for one in lost) / len(lost) >= 0.75 and sum(lost) / len(lost) < 0.05


@pytest.mark.full
@pytest.mark.parametrize(("rate", "noise"), [(3, 0.05), (30, 0.2), (100, 0.05)])
def test_where_no_k_matters_at_most_one_bench_in_ten_calls_one_faster(rate, noise):
    """200 benches. At 5 % there are 10 on the average; more than 20 have odds of 1 in 1,000."""
    answers = Counter(
        default_bench(Unmoved, M4, rate, seed, noise, 8.0)[0].recommendation.answer for seed in range(200)
    )
    assert answers["use"] <= 20 and answers["unknown"] == 0


@pytest.mark.parametrize("rate", [3, 500])
def test_a_k_that_is_twice_as_fast_is_recommended_on_slow_and_fast_machines(rate):
    """Negative control of the above: K 2 doubles the speed, every other K is level with plain decoding."""

    class Doubled(Unmoved):
        def steps(self, arm, prompt, tokens):
            steps, rounds = super().steps(arm, prompt, tokens)
            return steps / (2 if arm.k == 2 else 1), rounds

    for seed in range(6):
        report, _ = default_bench(Doubled, M4, rate, seed, 0.05, 8.0)
        assert (report.recommendation.answer, report.recommendation.k) == ("use", 2)
        assert conclusion(report).startswith("K 2: ") and "× faster (" in conclusion(report)


COPY = SamplePrompt("edit", "fish", "one fish, two fish, red fish, blue fish, one fish, two fish, red fish, blue fish")


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
    assert sample.draft_n == sum(len(r.draft) for r in rounds)
    assert sample.draft_n_accepted == sum(r.accepted for r in rounds)
    assert sample.rejected_n == sum(r.accepted < len(r.draft) for r in rounds) and sample.emitted_tokens == 28


@pytest.mark.slow
def test_fixed_length_answers_never_stop(tiny_pair):
    target, draft = map(str, tiny_pair)
    session = open_session(Pair("tiny", target, draft))
    live = Live(session, tokens=60, fixed=True)
    hot = Condition(Contender("model"), 1.5).arm(0)
    lengths = {live.answer(hot, SamplePrompt("code", f"{n}", f"def f{n}(")).emitted_tokens for n in range(20)}
    assert lengths == {60}


@pytest.fixture
def request_of_tiny(tiny_pair):
    pair = Pair("tiny", *map(str, tiny_pair))
    settings = replace(SETTINGS, raw=True, max_tokens=8)
    return BenchRequest(pair, settings, (), ("model", "ngram"), (SamplePrompt("code", "one", "def f("),))


def test_who_drafts_is_paired_with_what_it_needs(request_of_tiny, tiny_pair):
    machine = load_machine(request_of_tiny, lambda: False)
    assert [(one.drafter, one.draft) for one in machine.contenders] == [("model", str(tiny_pair[1])), ("ngram", None)]
    assert machine.environment.caches == {"target": ("KVCache",)} and machine.environment.dtype == "float32"
    assert {"specdec", "python", "mlx", "mlx-lm"} <= set(machine.environment.versions)
    assert machine.fitting(request_of_tiny.prompts, 8) == list(request_of_tiny.prompts)


def test_every_further_draft_must_fit_before_any_model_is_read(request_of_tiny, tiny_pair, device_says, monkeypatch):
    """The first draft alone was counted, and the others were read whatever the memory."""
    target, draft = map(str, tiny_pair)
    alone = Fit.of(find(PairSpec(request_of_tiny.pair))).at(64).peak_bytes
    device_says(usable_bytes=2 * alone)
    assert load_machine(request_of_tiny, lambda: False)
    several = replace(request_of_tiny, drafts=(target,) * 5)
    monkeypatch.setattr("specdec_cli.session.load.load_weights", None)
    with pytest.raises(DoesNotFit, match=f"{target} and {draft} and {target} and .* need "):
        load_machine(several, lambda: False)
