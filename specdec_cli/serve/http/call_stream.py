"""Calls of functions in streamed text (pure): a call is whole or it is text, and no text is held back without need.

Text goes on as it comes, but for what may become the mark of a call. Behind the mark the call is kept until it ends;
then it is read by the model's own parser. What that cannot read goes on as the text that it was.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.errors import SpecdecError
from specdec_cli.models.text import overlap
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.tool_call import ToolCall

LETTERS = string.ascii_letters + string.digits
# Templates of Mistral's refuse ids of any other length; everybody else takes what comes.
ID_LENGTH = 9


@dataclass(frozen=True, slots=True)
class Call:
    """A function that the model wants called, with the JSON of its arguments."""

    id: str
    name: str
    arguments: str

    @property
    def pieces(self) -> list[str]:
        """The arguments as a stream carries them."""
        return [self.arguments[at : at + 64] for at in range(0, len(self.arguments), 64)]


def new_id() -> str:
    """An id that every template takes."""
    return "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))


class CallStream:
    """Splits an answer into text and calls."""

    def __init__(self, tokenizer: Tokenizer, tools: Sequence[Mapping[str, Any]]) -> None:
        self._tokenizer, self._tools = tokenizer, tools
        self._start, self._end = tokenizer.call_marks or ("", "")
        self._held, self._inside, self._fresh = "", False, False

    def feed(self, text: str) -> list[str | Call]:
        """The pieces that `text` made certain; no text is empty."""
        self._held += text
        found: list[str | Call] = []
        while True:
            if self._inside:
                end = self._held.find(self._end) if self._end else -1
                if end < 0:
                    return found
                found += self._close(end + len(self._end))
                continue
            at = self._held.find(self._start) if self._start else -1
            if at < 0:
                return [*found, *self._tell(len(self._held) - self._uncertain())]
            blank = self._held[:at].rstrip()
            found += self._tell(len(blank))
            self._inside = True

    def finish(self) -> list[str | Call]:
        """The rest: an unfinished call is read as far as it came."""
        return self._close(len(self._held)) + self._tell(len(self._held)) if self._held else []

    def _uncertain(self) -> int:
        """Characters at the end that may belong to a call, or to the blank before one."""
        mark = overlap(self._held, self._start) if self._start else 0
        before = self._held[: len(self._held) - mark]
        return mark + len(before) - len(before.rstrip())

    def _tell(self, length: int) -> list[str | Call]:
        text, self._held = self._held[:length], self._held[length:]
        if self._fresh:
            text = text.lstrip()
        self._fresh = self._fresh and not text
        return [text] if text else []

    def _close(self, length: int) -> list[str | Call]:
        """The call in the first `length` characters, or their text."""
        if not self._inside:
            return []
        written, self._inside = self._held[:length], False
        calls = self._read(written.lstrip())
        if not calls:
            return self._tell(length)
        self._held, self._fresh = self._held[length:], True
        return list(calls)

    def _read(self, written: str) -> list[Call]:
        """Raises: nothing; none where it cannot be read."""
        try:
            rest, found = self._tokenizer.tool_calls(written, self._tools)
            calls = [_call(one) for one in found]
        except (SpecdecError, TypeError, ValueError, RecursionError):
            return []
        return [] if rest.strip() else calls


def _call(found: ToolCall) -> Call:
    """Raises: TypeError, ValueError for what JSON cannot say."""
    if not isinstance(found.name, str) or not isinstance(found.arguments, Mapping):
        raise TypeError("a call has a name and an object of arguments")
    return Call(new_id(), found.name, json.dumps(dict(found.arguments), ensure_ascii=False, allow_nan=False))
