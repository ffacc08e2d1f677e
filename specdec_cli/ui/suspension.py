"""The terminal around something drawn: Ctrl-Z, `bg` and `fg`, and keys that are typed meanwhile.

The shell gets a clean terminal with a visible cursor and its own settings. Ctrl-Z sends SIGTSTP: a handler of ours
cleans up, stops the process as the default does, and goes on afterwards. Nothing is written through Python's streams
here, as a handler may run amid a write of theirs. Under a wrapper (`uv run`, a script) the shell may have the terminal
back before the handler runs, and after `bg` the process goes on without it: then it is left alone until it is ours.
"""

from __future__ import annotations

import os
import signal
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TextIO

POLL_SECONDS: Final = 0.2
"""How soon a terminal that came back without a signal is noticed: `fg` sends none to a process that runs."""
_PASTE_MARKED, _PASTE_BARE = "\x1b[?2004h", "\x1b[?2004l"
_STANDARD = (0, 1, 2)


class Suspension:
    """While held, `leave()` is called before the process stops, and `resume()` once it has the terminal again.

    Of two, the one held later leaves first and resumes last.
    """

    def __init__(self, leave: Callable[[], None], resume: Callable[[], None]) -> None:
        self.leave, self.resume = leave, resume

    def hold(self) -> None:
        """Nothing outside the main thread, or where whoever started the process ignores Ctrl-Z."""
        if threading.current_thread() is threading.main_thread():
            _job.hold(self)

    def release(self) -> None:
        """The handlers are those of before as soon as nothing is held."""
        if threading.current_thread() is threading.main_thread():
            _job.release(self)


class _Job:
    """This process as a job of a shell: its one pair of handlers, and what is held, in order."""

    def __init__(self) -> None:
        self.held: list[Suspension] = []
        self._before: dict[signal.Signals, Any] = {}
        self._stopping = False

    def hold(self, one: Suspension) -> None:
        if one in self.held or signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN:
            return
        if not self.held:
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._stop)
            self._before[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continue)
        self.held.append(one)

    def release(self, one: Suspension) -> None:
        self.held = [held for held in self.held if held is not one]
        while self._before and not self.held:
            signal.signal(*self._before.popitem())

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:  # a second Ctrl-Z while the first is being obeyed
            return
        self._stopping = True
        for held in reversed(self.held):
            held.leave()
        outer = self._before.get(signal.SIGTSTP)
        if callable(outer):
            outer(number, frame)
        else:
            ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            # To this thread: another one might take it when the handler is back.
            signal.raise_signal(signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, ours)
        self._stopping = False
        self._resume()

    def _continue(self, number: int, frame: FrameType | None) -> None:
        outer = self._before.get(signal.SIGCONT)
        if callable(outer):
            outer(number, frame)
        if not self._stopping:  # stopped by what no handler sees
            self._resume()

    def _resume(self) -> None:
        """At once where the terminal is ours, else as soon as it is."""
        if in_background():
            before = signal.getsignal(signal.SIGALRM)
            signal.signal(signal.SIGALRM, lambda *_: self._poll(before))
            signal.setitimer(signal.ITIMER_REAL, POLL_SECONDS, POLL_SECONDS)
            return
        for held in self.held:
            held.resume()

    def _poll(self, before: Any) -> None:
        if not in_background() or not self.held:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self._resume()


_job = _Job()


def held_now() -> tuple[Suspension, ...]:
    """What is held, in order; of a display that was left open, too."""
    return tuple(_job.held)


def in_background(*descriptors: int) -> bool:
    """Whether the shell has the terminal of `descriptors` (the standard streams'), and this process may not set it up.

    False where none of them is the terminal that controls this process.
    """
    for descriptor in descriptors or _STANDARD:
        with suppress(OSError, ValueError):
            return os.tcgetpgrp(descriptor) != os.getpgrp()
    return False


@contextmanager
def suspension(leave: Callable[[], None], resume: Callable[[], None]) -> Iterator[None]:
    """A Suspension that is held in this context."""
    held = Suspension(leave, resume)
    held.hold()
    try:
        yield
    finally:
        held.release()


@contextmanager
def cursor_for_the_shell(stream: TextIO) -> Iterator[None]:
    """Around a progress that hides the cursor of the terminal `stream`: it is visible while the process is stopped."""

    def write(sequence: bytes) -> None:
        with suppress(OSError, ValueError):
            os.write(stream.fileno(), sequence)

    with suspension(lambda: write(b"\x1b[?25h"), lambda: write(b"\x1b[?25l")):
        yield


@contextmanager
def no_echo(keys: TextIO | None, kept_for: int | None = None) -> Iterator[None]:
    """In this context the terminal `keys` echoes nothing; Ctrl-C still interrupts, Ctrl-Z still stops.

    What is typed waits for whoever reads next: the shell, or an editor on the terminal `kept_for` (a descriptor), which
    gets every key as it was typed and every paste marked as one. No terminal: nothing is done.
    """
    try:
        descriptor = keys.fileno() if keys else -1
        before = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError):  # no terminal, or closed
        yield
        return
    silent = list(before)
    silent[3] &= ~termios.ECHO
    if kept_for is not None:  # each key at once, and Enter as it was typed
        silent[0] &= ~termios.ICRNL
        silent[3] &= ~termios.ICANON

    def set_up(settings: list[Any], pastes: str) -> None:
        if in_background(descriptor):
            return  # the shell has set up its own; it gives the terminal back first
        if kept_for is not None:
            with suppress(OSError):
                os.write(kept_for, pastes.encode())
        # Not stopped even where the shell takes the terminal at this moment; one that has gone needs nothing.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    with suspension(lambda: set_up(before, _PASTE_BARE), lambda: set_up(silent, _PASTE_MARKED)):
        set_up(silent, _PASTE_MARKED)
        try:
            yield
        finally:
            set_up(before, _PASTE_BARE)
