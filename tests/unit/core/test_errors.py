"""The error tree: every failure has two lines and an exit code."""

import inspect
import re

import pytest

from specdec_cli.core import errors
from specdec_cli.core.errors import NotAvailable, Refused, reason, untrusted

CODES = {
    "SpecdecError": 1,
    "UsageError": 2,
    "NotAvailable": 3,
    "Unanswered": 3,
    "PartlyHere": 3,
    "Refused": 4,
    "DoesNotFit": 5,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_each_kind_has_its_exit_code_and_keeps_both_lines(kind, code):
    error = getattr(errors, kind)("what happened", "the next command")
    assert (error.exit_code, error.message, error.hint) == (code, "what happened", "the next command")
    assert str(error) == "what happened"


def test_the_tree_in_the_docstring_names_every_kind_with_its_code():
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    for kind in kinds:
        line = next(line for line in errors.__doc__.splitlines() if kind.__name__ in line)
        assert f"exit {kind.exit_code}" in line


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
