"""The error tree, every failure of which has two lines and an exit code; and numbers as people write them."""

from __future__ import annotations

import inspect
import re

import pytest

from specdec_cli.core import errors
from specdec_cli.core.errors import NotAvailable, Refused, reason, untrusted
from specdec_cli.core.format import count, percent, size, speed


def test_each_kind_has_the_exit_code_that_the_tree_in_the_docstring_says_and_keeps_both_lines():
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 4, 5}
    for kind in kinds:
        line = next(line for line in errors.__doc__.splitlines() if kind.__name__ in line)
        assert f"exit {kind.exit_code}" in line
    error = Refused("what happened", "the next command")
    assert (error.message, error.hint, str(error)) == ("what happened", "the next command", "what happened")


# What foreign code raises is one of our errors, without names of Python.

RAISED = [
    (KeyError("hidden_size"), "'hidden_size' is missing"),
    (ZeroDivisionError("division by zero"), "division by zero"),
    (RecursionError("maximum recursion depth exceeded"), "something in it is nested too deeply"),
    (MemoryError(), "something in it is too large for this machine's memory"),
    (FileNotFoundError(2, "No such file or directory", "vocab.json"), "vocab.json: No such file or directory"),
    (Exception("data did not match\nany variant"), "data did not match any variant"),
    (ValueError("TypeError: 5 is no <class 'int'> but NoneType"), "5 is no int but null"),
    (ValueError("x" * 500), "x" * 159 + "…"),
]


@pytest.mark.parametrize(("error", "said"), RAISED, ids=range(len(RAISED)))
def test_every_exception_becomes_one_line(error, said):
    with pytest.raises(NotAvailable) as caught, untrusted(lambda why: NotAvailable(why, "next")):
        raise error
    assert caught.value.message == reason(error) == said and caught.value.__cause__ is error


@pytest.mark.parametrize("kind", [StopIteration, AssertionError, RuntimeError, ValueError])
def test_an_exception_without_a_word_is_told_by_its_kind_and_its_place(kind):
    """The bug: a bare StopIteration was "a check failed, and it did not say why", which nobody can act on."""
    with pytest.raises(NotAvailable) as caught, untrusted(lambda why: NotAvailable(why, "next")):
        raise kind
    words = re.fullmatch(r"([a-z ]+) at test_errors\.py:\d+, without an explanation", caught.value.message)
    assert words and words[1].replace(" ", "") == kind.__name__.lower()
    assert "did not say why" not in reason(kind()) and reason(kind()) == reason(kind("  "))


def test_errors_of_ours_and_interrupts_pass():
    for error in (Refused("a", "b"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, untrusted(lambda why: NotAvailable(why, "next")):
            raise error
        assert caught.value is error


# Numbers.


def test_figures_read_as_people_write_them() -> None:
    assert [percent(rate) for rate in (None, 0.0, 0.617, 1.0)] == ["–", "0 %", "62 %", "100 %"]
    assert [count(1, "token"), count(1234, "token"), count(2, "target pass")] == [
        "1 token",
        "1 234 tokens",
        "2 target passes",
    ]
    assert [speed(None), speed(8.04), speed(117.6)] == ["– tok/s", "8.0 tok/s", "118 tok/s"]


def test_a_percentage_never_shows_minus_zero_and_can_show_the_sign_of_a_gain():
    assert percent(-0.001) == "0 %" and percent(0.128, digits=1) == "12.8 %"
    assert percent(None, unknown="") == ""


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (None, "–"),
        (80, "80 B"),
        (999, "999 B"),
        (12_400, "12 kB"),
        (999_600, "1.0 MB"),
        (5_240_000, "5.2 MB"),
        (340_000_000, "340 MB"),
        (999_600_000, "1.0 GB"),
        (4_340_000_000, "4.3 GB"),
    ],
)
def test_sizes_are_decimal_and_change_their_unit_where_they_round_up(count_bytes, text):
    assert size(count_bytes) == text
