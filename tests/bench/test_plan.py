"""What is typed, and what is made of it."""

from dataclasses import dataclass
from random import Random

import pytest

from specdec_cli.bench.sweep import in_turns, tokens_within
from specdec_cli.cli.bench_options import parse_lengths, parse_seconds
from specdec_cli.errors import UsageError


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
