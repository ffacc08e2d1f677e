"""The error tree: every failure has two lines and an exit code."""

import inspect

import pytest

from specdec_cli import errors

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
