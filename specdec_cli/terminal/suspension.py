"""The terminal around something drawn: Ctrl-Z, `bg` and `fg`, and keys that are typed meanwhile.

The shell gets a clean terminal with a visible cursor and its own settings. Nothing is written through Python's streams
here: a handler may run amid a write of theirs. A process in the background leaves the terminal alone.
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

from specdec_cli.terminal.terminal import is_terminal

_PASTE_MARKED, _PASTE_BARE = "\x1b[?2004h", "\x1b[?2004l"
_STANDARD: Final = (0, 1, 2)


class Suspension:
    """While held, `leave()` is called before the process stops, and `resume()` once it has the terminal again.

    Of two, the one held later leaves first and resumes last. Nothing is done outside the main thread, or where whoever
    started the process ignores Ctrl-Z.
    """

    def __init__(self, leave: Callable[[], None], resume: Callable[[], None]) -> None:
        self.leave, self.resume = leave, resume

    def hold(self) -> None:
        """Begins; holding it again changes nothing."""
        main = threading.current_thread() is threading.main_thread()
        if not main or self in held or signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN:
            return
        if not held:
            _before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, _stop)
            _before[signal.SIGCONT] = signal.signal(signal.SIGCONT, _resume)
        held.append(self)

    def release(self) -> None:
        """Ends. The handlers are those of before as soon as nothing is held."""
        if self in held:
            held.remove(self)
            while _before and not held:
                signal.signal(*_before.popitem())

    def __enter__(self) -> None:
        self.hold()

    def __exit__(self, *_: object) -> None:
        self.release()


held: list[Suspension] = []
"""What is held, in order; of a display that was left open, too."""
_before: dict[signal.Signals, Any] = {}
_waiting = False


def _stop(number: int, frame: FrameType | None) -> None:
    """Stops this process as it would have; a second Ctrl-Z meanwhile is ignored."""
    for each in (signal.SIGTSTP, signal.SIGCONT):
        signal.signal(each, signal.SIG_IGN)
    for one in reversed(held):
        one.leave()
    signal.signal(signal.SIGTSTP, _before.get(signal.SIGTSTP, signal.SIG_DFL))
    signal.raise_signal(signal.SIGTSTP)  # to this thread: another one might take it when the handler is back
    signal.signal(signal.SIGTSTP, _stop)
    signal.signal(signal.SIGCONT, _resume)
    _resume()


def _resume(*_: object) -> None:
    """At once where the terminal is ours, else with the first frame that is drawn once it is."""
    global _waiting
    _waiting = in_background()
    for one in [] if _waiting else held:
        one.resume()


STOPPING: Final = "stopping after this piece; Ctrl-C again ends now"
answered = threading.Event()
"""Set while that is the last row of the screen: what is drawn by the clock alone would wipe it off."""


def answer_press(presses: int, err: TextIO, plain: bool, quiet: bool) -> None:
    """To a person whose reply goes on after Ctrl-C: the first is answered, the next ends the program, terminal clean.

    It may be called in any thread.
    """
    if presses > 1:
        for one in reversed(held):
            one.leave()
        os._exit(130)
    if not quiet and is_terminal(err):
        answered.set()
        with suppress(OSError, ValueError):
            os.write(err.fileno(), (f"\n{STOPPING}\n" if plain else f"\r\x1b[2K{STOPPING}").encode())


def may_draw() -> bool:
    """Whether the terminal is ours, all that Ctrl-Z interrupted being resumed: `fg` sends no signal after `bg`."""
    if _waiting:
        _resume()
    return not in_background()


def in_background(*descriptors: int) -> bool:
    """Whether the shell has the terminal of `descriptors` (the standard streams'), and this process may not set it up.

    False where none of them is the terminal that controls this process.
    """
    for descriptor in descriptors or _STANDARD:
        with suppress(OSError, ValueError):
            return os.tcgetpgrp(descriptor) != os.getpgrp()
    return False


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

    with Suspension(lambda: set_up(before, _PASTE_BARE), lambda: set_up(silent, _PASTE_MARKED)):
        try:
            set_up(silent, _PASTE_MARKED)
            yield
        finally:
            set_up(before, _PASTE_BARE)
