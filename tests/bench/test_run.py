"""One bench from what is typed to its result, on a simulated machine."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

import pytest

from fakes.bench_machine import Simulated, Texts
from fakes.bench_result import sample_result
from fakes.machine import BY_NAME
from specdec_cli.bench.report import reports
from specdec_cli.bench.result import Contender
from specdec_cli.bench.sweep import Bench, BenchRequest, Subjects, in_turns, tokens_within
from specdec_cli.cli.bench_options import parse_lengths, parse_seconds
from specdec_cli.errors import DoesNotFit, UsageError
from specdec_cli.pairs.pair import Pair


@dataclass(frozen=True)
class Thing:
    kind: str
    name: int


@pytest.mark.parametrize(
    ("text", "ks"),
    [
        ("0-8,auto", (*range(9), "auto")),
        ("4", (4,)),
        ("auto", ("auto",)),
        ("1-3,2,8", (1, 2, 3, 8)),
        (" 2 , 4 - 5 ", (2, 4, 5)),
    ],
)
def test_lists_and_ranges(text, ks):
    assert parse_lengths(text) == ks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "-k 0 drafts nothing"),
        ("1,x", "-k 1,x: x is neither a number, a range nor auto"),
        ("1,,2", "-k 1,,2: nothing is neither"),
        ("-3", "-k -3: -3 is neither"),
        ("0-17", "-k 0-17: 0-17 is outside 0 to 16"),
        ("5-2", "-k 5-2: 5-2 runs backwards"),
    ],
)
def test_other_lengths_are_usage_errors(text, message):
    with pytest.raises(UsageError, match=message.replace("(", r"\(")) as found:
        parse_lengths(text)
    assert found.value.hint


def test_seconds_minutes_and_hours():
    assert [parse_seconds("--x", text) for text in ("90", "90s", "2m", "1.5m", "1h")] == [90, 90, 120, 90, 3600]
    with pytest.raises(UsageError, match="--time-budget soon is not a time"):
        parse_seconds("--time-budget", "soon")


def test_prompts_come_one_of_each_kind_in_turn_and_in_an_order_of_the_seed():
    things = [Thing(kind, n) for kind in ("a", "b", "c") for n in range(4)] + [Thing("d", 0)]
    found = in_turns(things, Random(5))
    assert [thing.kind for thing in found] == [*"abcd", *"abc", *"abc", *"abc"]
    assert sorted(found, key=things.index) == things
    assert found == in_turns(things, Random(5)) != in_turns(things, Random(6))


def test_answers_are_as_long_as_the_budget_allows():
    assert tokens_within(120, 0.1, 0.005, 1) == 128
    assert tokens_within(120, 0.3, 0.04, 1) == 55
    assert tokens_within(120, 0.3, 0.02, 2) == 47
    assert tokens_within(120, 5.0, 0.5, 1) == 24


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
    return Bench(replace(request, **changes), machine, subjects, lambda *_: None, tell)


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
