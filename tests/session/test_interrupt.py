"""Ctrl-C as a request. The signals are raised in this process, and its own handlers come back."""

import signal

import pytest

from specdec_cli.session.interrupt import TWICE_SECONDS, Interrupt, Presses, unwinding


def press(number=signal.SIGINT):
    signal.raise_signal(number)


@pytest.fixture(autouse=True)
def _handlers_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_the_first_press_is_a_request_and_the_second_ends_the_program():
    with Interrupt() as interrupt:
        assert not interrupt.requested()
        press()
        assert interrupt.requested()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_a_second_press_that_does_not_follow_the_first_is_a_request_again():
    answers = iter([False, False, True])
    with Interrupt(lambda: next(answers)) as interrupt:
        press()
        press()
        assert interrupt.requested()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_handlers_come_back_also_after_an_error():
    with pytest.raises(ValueError), Interrupt():
        raise ValueError


@pytest.mark.parametrize("active", [Interrupt, unwinding])
def test_a_termination_unwinds_so_that_the_terminal_is_restored(active):
    restored = []
    with pytest.raises(SystemExit) as ended, active():
        try:
            press(signal.SIGTERM)
        finally:
            restored.append(True)
    assert (ended.value.code, restored) == (128 + signal.SIGTERM, [True])


@pytest.mark.parametrize(
    ("seconds", "again"),
    [([0.0], [False]), ([0.0, TWICE_SECONDS], [False, True]), ([0.0, 1.01, 1.5, 9.0], [False, False, True, False])],
)
def test_a_press_counts_as_a_second_one_within_a_second(seconds, again):
    clock = iter(seconds)
    presses = Presses(lambda: next(clock))
    assert [presses.again() for _ in seconds] == again
