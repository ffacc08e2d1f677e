"""One bench from request to result, on a simulated machine."""

import re
from dataclasses import replace

import pytest

from fakes.bench_machine import Simulated, Texts
from fakes.bench_result import sample_result
from fakes.machine import BY_NAME
from specdec_cli.bench.report import reports
from specdec_cli.bench.result import Contender
from specdec_cli.bench.sweep import Bench, BenchRequest, Subjects
from specdec_cli.errors import DoesNotFit
from specdec_cli.pairs.pair import Pair

PROMPTS = tuple(Texts({"code": 0.8, "chat": 0.6}).prompts(6, 1))


class Machine(Simulated):
    """A simulated machine with a context of `fit` prompts."""

    fit = 12

    def fitting(self, prompts, tokens):
        return list(prompts)[: self.fit]


def bench(machine, told=None, **changes):
    request = BenchRequest(
        Pair("tiny", "org/target", "org/draft"), True, (), ("model",), (0, 1, 2, 4), (0.0,), "auto", 0,
        PROMPTS, "", None, False, False, 60.0, 0.0, False,
    )  # fmt: skip
    subjects = Subjects((Contender("model", "org/draft"),), sample_result(budget_seconds=20.0).environment)
    tell = [].append if told is None else told.append
    return Bench(replace(request, **changes), machine, subjects, lambda progress: None, tell)


def machine(rate=50.0, **faults):
    return Machine(replace(BY_NAME["M4 Pro (mlx 3852)"], plain_seconds=1 / rate), **faults)


def test_a_bench_that_ran_has_a_whole_result_with_its_settings():
    found = bench(machine())
    assert not found.begun
    found.run()
    result = found.result()
    assert found.begun and not result.partial and result.samples and result.costs
    assert (result.settings.pair, result.settings.kinds) == ("tiny", ("code", "chat"))
    assert result.settings.prompts == "12 bundled prompts of 2 kinds"


def test_one_kind_one_prompt_and_one_file_are_counted_as_one():
    """The bug: "1 kinds", and "1 prompts of" a file."""
    code = PROMPTS[:6]
    found = bench(machine(), prompts=code)
    found.run()
    assert found.result().settings.prompts == "6 bundled prompts of 1 kind"
    one = bench(machine(), prompts=code[:1], source="mine.txt")
    one.run()
    assert one.result().settings.prompts == "1 prompt of mine.txt"
    small = machine()
    small.fit = 0
    with pytest.raises(DoesNotFit, match="the only prompt leaves no room for 128 tokens"):
        bench(small, prompts=code[:1]).run()


def test_answers_are_as_long_as_the_budget_allows_unless_a_length_was_requested():
    free, fixed = machine(), machine()
    bench(free).run()
    bench(fixed, max_tokens=50).run()
    assert 24 <= free.limits[0] < 96 and fixed.limits == (50,)


def test_prompts_without_room_are_left_out_with_a_notice():
    small = machine()
    small.fit = 5
    found = bench(small, told := [])
    found.run()
    assert told == ["7 of 12 prompts leave no room for 128 tokens: left out"]
    assert {sample.prompt.kind for sample in found.result().samples} == {"code"}


def test_an_interrupted_warm_up_measures_nothing_and_raises_nothing():
    found = bench(machine(cancel_after=0.01))
    found.run()
    assert not found.begun


def test_a_machine_too_slow_for_the_budget_says_first_how_long_it_takes_and_ends_with_an_answer():
    """The bug: `specdec bench` ended with "no recommendation" and the advice to spend six minutes."""
    slow = machine(rate=1.0, prefill_steps=15.0)
    found = bench(slow, told := [])
    found.run()
    (sentence,) = told
    minutes = int(
        re.fullmatch(r"this machine is slow: 3 prompts take about (\d+) min, over --time-budget", sentence)[1]
    )
    assert slow.clock() / 60 < minutes < 1.6 * slow.clock() / 60
    assert slow.clock() > 60 and not found.result().partial
    samples = found.result().samples
    assert {sample.emitted_tokens for sample in samples} == {24} and len(samples) == 9
    assert {sample.arm.k for sample in samples} == {0, 2, 4}
    assert reports(found.result())[0].recommendation.answer != "unknown"


def test_a_machine_that_is_fast_enough_says_nothing_and_keeps_the_budget():
    quick = machine()
    bench(quick, told := []).run()
    assert told == [] and quick.clock() < 61
