"""A chat template: a program that came with the weights. It ends in time, in memory, or by its limit.

What it is given is text: where that spells a special token, a mark cuts the spelling in two, so that only the template
itself writes special tokens.

jinja2's sandbox lets a template compute as long and as large as it likes. Here loops are stopped by a watchdog, and the
two operators whose one step may take hours or all memory (`*` and `**`) are bounded before they compute.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

# A long conversation takes some milliseconds.
LIMIT_SECONDS = 5.0
LIMIT_BYTES = 300_000_000
MOST_REPEATED, MOST_BITS = 10_000_000, 100_000
STEP_SECONDS = 0.02

# Characters that no alphabet has, for marks that no content contains.
PRIVATE = range(0xF0000, 0xFFFFE)


class Spellings:
    """Finds the texts of some tokens in whatever a template is given."""

    def __init__(self, tokens: Collection[str]) -> None:
        """A token of one character has no middle to be cut in, and is left alone."""
        rests = defaultdict[str, list[str]](list)
        for token in tokens:
            if len(token) > 1:
                rests[token[0]].append(token[1:])
        cuts = [f"{re.escape(first)}(?={_one_of(rest)})" for first, rest in rests.items()]
        self._cut = re.compile("|".join(cuts) or "(?!)")

    def parts(self, text: str) -> list[str]:
        """`text` cut there."""
        mark = next(unused_marks(text))
        return str(self.cut(text, mark)).split(mark)

    def cut(self, value: Any, mark: str) -> Any:
        """`value` with `mark` behind the first character of each spelling in its texts, at any depth."""
        if isinstance(value, str):
            return self._cut.sub(rf"\g<0>{mark}", value)
        if isinstance(value, Mapping):
            return {self.cut(key, mark): self.cut(inner, mark) for key, inner in value.items()}
        return [self.cut(inner, mark) for inner in value] if isinstance(value, list | tuple) else value


def _one_of(texts: Collection[str]) -> str:
    """An expression of any of `texts`; common beginnings stand once, for some models have a thousand special tokens."""
    head = os.path.commonprefix(list(texts))  # noqa: RUF071 - texts, no paths
    rests = defaultdict[str, list[str]](list)
    for text in texts:
        if len(text) == len(head):
            return re.escape(head)  # whatever else goes on from there, this one is found
        rests[text[len(head)]].append(text[len(head) :])
    return f"{re.escape(head)}(?:{'|'.join(map(_one_of, rests.values()))})"


def unused_marks(*given: object) -> Iterator[str]:
    """Characters that are in no text of `given`."""
    text = json.dumps(given, ensure_ascii=False, skipkeys=True, default=str)
    return (mark for mark in map(chr, PRIVATE) if mark not in text)


class TemplateStopped(BaseException):
    """The template took too long or too much. No Exception: a template's own handlers must not catch it."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with bounds on `*` and `**`."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Raises: OverflowError for a result that would be too large."""
        if operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > MOST_BITS:
                raise OverflowError("a power in it is too large")
        else:
            for one, times in ((left, right), (right, left)):
                if isinstance(times, int) and not isinstance(one, int | float) and _size(one) * times > MOST_REPEATED:
                    raise OverflowError("a repetition in it is too long")
        return super().call_binop(context, operator, left, right)


def _size(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 1


@contextmanager
def limited(seconds: float = LIMIT_SECONDS, limit_bytes: int = LIMIT_BYTES) -> Iterator[None]:
    """Stops what runs in this context, in this thread, when it takes more time or memory.

    A watchdog raises TemplateStopped in the thread at its next step of Python; a signal would do so in the main thread
    alone. Raises: TimeoutError, in words.
    """
    watch = _Watch(threading.get_ident(), seconds, limit_bytes)
    try:
        with watch:
            yield
    except TemplateStopped as error:
        raise TimeoutError(watch.reason) from error


class _Watch:
    """What the watchdog looks at: the thread `watched`, in which it raises TemplateStopped at most once."""

    def __init__(self, watched: int, seconds: float, limit_bytes: int) -> None:
        self._watched, self._seconds, self._limit_bytes = watched, seconds, limit_bytes
        self._lock, self._began, self._before_bytes = threading.Lock(), time.monotonic(), peak_bytes()
        self._ended = self._raised = False
        self.reason = ""

    def __enter__(self) -> None:
        WATCHDOG.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
        while self._raised and kind is not TemplateStopped:
            pass  # it is on its way, and arrives within a few steps of Python: here at the latest

    def look(self) -> bool:
        """Stop the thread if it has taken too much. Whether to look again."""
        if time.monotonic() - self._began >= self._seconds:
            self._stop(f"it did not end within {self._seconds:g} s")
        elif peak_bytes() - self._before_bytes > self._limit_bytes:
            self._stop(f"it took more than {self._limit_bytes / 1e9:g} GB of memory")
        return not (self._ended or self._raised)

    def _stop(self, reason: str) -> None:
        with self._lock:
            if not self._ended and not self._raised:
                self.reason, self._raised = reason, True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._watched), ctypes.py_object(TemplateStopped)
                )


class _Watchdog:
    """One thread for every watch: to begin one each time would take longer than most templates do."""

    def __init__(self) -> None:
        self._watches: set[_Watch] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, watch: _Watch) -> None:
        """Look at it every STEP_SECONDS, until it is over. No watched thread holds the lock."""
        with self._changed:
            self._watches.add(watch)
            if self._thread is None or not self._thread.is_alive():  # a forked process has none
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._watches))
            time.sleep(STEP_SECONDS)
            with self._changed:
                watches = tuple(self._watches)
            over = {watch for watch in watches if not watch.look()}
            with self._changed:
                self._watches -= over


WATCHDOG = _Watchdog()


def peak_bytes() -> int:
    """The most memory this process has held; Linux counts in kB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
