"""Whatever foreign code raises is one of our errors, without Python's names."""

import pytest

from specdec_cli.errors import NotAvailable, Refused, reason, untrusted

RAISED = [
    (KeyError("hidden_size"), "'hidden_size' is missing"),
    (ZeroDivisionError("division by zero"), "division by zero"),
    (AssertionError(), "a check failed, and it did not say why"),
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


def test_errors_of_ours_and_interrupts_pass():
    for error in (Refused("a", "b"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, untrusted(lambda why: NotAvailable(why, "next")):
            raise error
        assert caught.value is error
