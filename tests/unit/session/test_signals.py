"""Ctrl-C as a request. The signals are raised in this process, and its own handlers come back."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from specdec_cli.session import signals as interrupt
from specdec_cli.session.signals import ENDING, Interrupt, unwinding


def press(number=signal.SIGINT):
    signal.raise_signal(number)


@pytest.fixture(autouse=True)
def _nothing_ends_these_tests(monkeypatch):
    monkeypatch.setattr(interrupt, "ENDING_SECONDS", 1e6)


@pytest.fixture(autouse=True)
def _handlers_come_back():
    """But for a program that is ending, whose later signals are not heard."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    yield
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before or all(getattr(handler, "__name__", "") == "_ending_already" for handler in after.values())


def test_the_second_press_of_a_reply_ends_it_however_long_the_first_has_waited():
    """The bug: a pass longer than a second made both of two presses first ones, and a chat could not be left."""
    clock = iter((0.0, 9.0))
    presses = interrupt.Presses(lambda: next(clock))
    with Interrupt(presses.again) as reply, pytest.raises(KeyboardInterrupt):
        assert not reply.requested()
        press()
        assert reply.requested()
        press()


def test_a_reply_that_goes_on_after_a_press_is_answered_by_another_thread(monkeypatch):
    """The bug: while a piece of a long prompt was read, Ctrl-C showed nothing for a minute."""
    monkeypatch.setattr(interrupt, "PATIENCE_SECONDS", (0.02, 0.02))
    answered, twice = [], threading.Event()

    def stuck(presses):
        answered.append((presses, threading.current_thread() is threading.main_thread()))
        twice.set() if presses > 1 else signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), Interrupt(stuck=stuck):
        press()
        assert twice.wait(10)
    assert answered[0] == (1, False) and len(answered) <= 2


def test_a_reply_that_ends_at_once_is_not_spoken_to(monkeypatch):
    monkeypatch.setattr(interrupt, "PATIENCE_SECONDS", (0.2, 0.2))
    answered = []
    with Interrupt(stuck=answered.append) as reply:
        press()
        assert reply.requested()
    time.sleep(0.3)
    assert not answered and signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("number", ENDING[:2])
def test_what_ends_the_program_unwinds_so_that_the_terminal_is_restored(number):
    restored = []
    with pytest.raises(SystemExit) as ended, unwinding(), Interrupt():
        try:
            press(number)
        finally:
            restored.append(True)
    assert (ended.value.code, restored) == (128 + number, [True])


def test_a_second_signal_does_not_break_off_the_restoring():
    """The bug: two SIGTERMs at the prompt left echo off and bracketed paste on."""
    restored = []
    with pytest.raises(SystemExit) as ended, unwinding(), Interrupt():
        try:
            press(signal.SIGTERM)
        finally:
            for number in (*ENDING, signal.SIGINT, signal.SIGINT):
                press(number)
            restored.append(True)
    press(signal.SIGTERM)
    assert (ended.value.code, restored) == (128 + signal.SIGTERM, [True])


@pytest.mark.slow
def test_a_program_whose_giving_back_never_ends_is_ended_all_the_same():
    """The bug: a chat whose window was closed went on for ever, waiting for its prompt's tasks."""
    code = """
import signal, threading
from specdec_cli.session import signals as interrupt
interrupt.ENDING_SECONDS = 0.2
with interrupt.unwinding():
    try:
        signal.raise_signal(signal.SIGHUP)
    finally:
        threading.Event().wait()
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == 128 + signal.SIGHUP


def test_a_program_started_under_nohup_goes_on_when_the_terminal_closes():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with unwinding():
            press(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
