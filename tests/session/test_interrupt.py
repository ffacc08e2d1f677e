"""Ctrl-C as a request. The signals are raised in this process, and its own handlers come back."""

from __future__ import annotations

import signal
import subprocess
import sys

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


def test_the_first_press_is_a_request_and_the_second_ends_the_program():
    with Interrupt() as interrupt:
        assert not interrupt.requested()
        press()
        assert interrupt.requested()
        with pytest.raises(KeyboardInterrupt):
            press()


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
