"""Keys typed while something is drawn. Law: they are not painted into it, and the terminal is given back as it was."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from specdec_cli.ui.suspension import in_background, suspension

_PASTE_MARKED: Final = "\x1b[?2004h"
_PASTE_BARE: Final = "\x1b[?2004l"


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

    def set_up(settings: list[Any], pastes: str) -> None:
        if in_background(descriptor):
            return  # the shell has set up its own; it gives the terminal back first
        if kept_for is not None:
            with suppress(OSError):
                os.write(kept_for, pastes.encode())
        _set(descriptor, settings)

    def leave() -> None:
        set_up(before, _PASTE_BARE)

    def resume() -> None:
        set_up(_silent(before, kept_for is not None), _PASTE_MARKED)

    with suspension(leave, resume):
        resume()
        try:
            yield
        finally:
            leave()


def _silent(before: list[Any], raw: bool) -> list[Any]:
    """The settings `before` without echo; `raw` also hands over each key at once and Enter as it was typed."""
    silent = list(before)
    silent[3] &= ~termios.ECHO
    if raw:
        silent[0] &= ~termios.ICRNL
        silent[3] &= ~termios.ICANON
    return silent


def _set(descriptor: int, settings: list[Any]) -> None:
    """Not stopped even where the shell takes the terminal at this moment; a terminal that has gone needs nothing."""
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    except termios.error:
        pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
