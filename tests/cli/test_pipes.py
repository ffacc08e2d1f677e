"""A reader that leaves ends a command quietly; every other failure goes on as it is."""

import inspect

import pytest

from specdec_cli.cli.pipes import ReaderLeft, ignore_broken_pipe


def raising(error):
    @ignore_broken_pipe
    def command(name: str, *, times: int = 1) -> None:
        """Fails."""
        raise error

    return command


def test_a_broken_pipe_becomes_a_reader_that_left():
    with pytest.raises(ReaderLeft) as caught:
        raising(BrokenPipeError())("x")
    assert isinstance(caught.value.__cause__, BrokenPipeError)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), ConnectionResetError()])
def test_any_other_failure_is_left_alone(error):
    with pytest.raises(type(error)):
        raising(error)("x")


def test_typer_still_sees_the_commands_own_signature():
    command = raising(OSError())
    assert list(inspect.signature(command).parameters) == ["name", "times"]
    assert (command.__name__, command.__doc__) == ("command", "Fails.")


def test_what_the_command_is_given_arrives():
    heard = []

    @ignore_broken_pipe
    def command(name: str, *, times: int = 1) -> None:
        heard.append((name, times))

    command("x", times=2)
    assert heard == [("x", 2)]
