"""Stop strings, thinking blocks and loops in a reply (pure). Law: what is shown does not depend on how it was split.

A thinking block counts only where a reply begins. An answer may mention such tags, so later ones are its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class StopStrings:
    """Takes decoded text as it comes and holds back what may still become a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string was completed). After a stop nothing more is shown."""
        self._held += text
        # The stop string completed first wins, as if text came character by character; of several the longest.
        hits = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if hits:
            shown, self._held = self._held[: min(hits)[1]], ""
            return shown, True
        keep = max((overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def finish(self) -> str:
        """The text held back that never became a stop string."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


Piece = tuple[bool, str]
"""(whether it is thinking, text)."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """The tags around a model's thinking; `opened`: the prompt already ends with the start tag."""

    start: str
    end: str
    opened: bool = False

    def split(self, text: str) -> tuple[str, str]:
        """(thinking, answer) of a whole reply, without tags and the blank lines around them."""
        stream = ThinkingStream(self)
        pieces = [*stream.feed(text), *stream.finish()]
        thought = "".join(part for thinks, part in pieces if thinks)
        return thought, "".join(part for thinks, part in pieces if not thinks)


class ThinkingStream:
    """Splits streamed text into thinking and answer, each piece as soon as its side is certain; tags are dropped.

    Models also call functions without an end to their thinking. Behind the mark of a call text is kept: it is thinking
    once the thinking ends, and else the answer, to be read for its calls.
    `thought`: whether there was any thinking.
    """

    __slots__ = ("_call", "_fresh", "_held", "_state", "_tags", "thought")

    def __init__(self, tags: Thinking | None, call: str = "") -> None:
        """Without tags all text is the answer; a call begins with `call`, if any can be read."""
        self._tags, self._call = tags, call
        self._state = "answer" if tags is None else "thinking" if tags.opened else "before"
        self._fresh = self.thought = tags is not None and tags.opened  # leading newlines of either side are dropped
        self._held = ""

    @property
    def thinks(self) -> bool:
        """Whether the last text was thinking."""
        return self._state == "thinking"

    @property
    def answers(self) -> bool:
        """Whether all that follows is the answer."""
        return self._state == "answer"

    @property
    def calls(self) -> bool:
        """Whether what is thinking so far may go over to a call."""
        return self.thinks and bool(self._call) and self._call in self._held

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` made certain; none is empty."""
        self._held += text
        pieces: list[Piece] = []
        if self._state == "before":
            self._begin()
        if self._state == "thinking":
            pieces += self._think()
        if self._state == "answer":
            pieces += self._emit(len(self._held))
        return pieces

    def finish(self, cut: bool = False) -> list[Piece]:
        """The text held back, without blank ends of thinking; an answer that was `cut` there calls nothing."""
        if self.calls and not cut:
            self._state = "answer"
        return self._emit(len(self._held.rstrip()) if self.thinks else len(self._held))

    def _begin(self) -> None:
        assert self._tags is not None
        said = self._held.lstrip()
        if said.startswith(self._tags.start):
            self._state, self._fresh, self.thought = "thinking", True, True
            self._held = said.removeprefix(self._tags.start)
        elif not self._tags.start.startswith(said):
            self._state = "answer"

    def _think(self) -> list[Piece]:
        assert self._tags is not None
        end = self._held.find(self._tags.end)
        if end < 0:
            marked = max(overlap(self._held, self._tags.end), overlap(self._held, self._call))
            sure = self._held.partition(self._call)[0] if self.calls else self._held[: len(self._held) - marked]
            return self._emit(len(sure.rstrip()))
        rest = self._held[end + len(self._tags.end) :]
        self._held = self._held[:end].rstrip()
        pieces = self._emit(len(self._held))
        self._state, self._fresh, self._held = "answer", True, rest
        return pieces

    def _emit(self, length: int) -> list[Piece]:
        text, self._held = self._held[:length], self._held[length:]
        if self._fresh:
            text = text.lstrip("\n")
            self._fresh = not text
        return [(self.thinks, text)] if text else []


class ThinkingCount:
    """Counts the tokens of a reply until its thinking is closed, those of the tags included; all if it never is.

    Those behind the mark of a `call` count once it is known that they are thinking.
    """

    def __init__(self, tags: Thinking | None, call: str = "") -> None:
        self._stream = ThinkingStream(tags, call)
        self._seen = self._thought = 0

    @property
    def tokens(self) -> int:
        """Tokens of thinking so far."""
        return self._thought if self._stream.thought else 0

    def feed(self, pieces: Sequence[str]) -> None:
        """Take the texts of further tokens, one each."""
        for piece in pieces:
            if self._stream.answers:
                return
            self._stream.feed(piece)
            self._seen += 1
            self._thought = self._thought if self._stream.calls else self._seen

    def finish(self, cut: bool = False) -> None:
        """No more tokens come. Where the answer was `cut`, the mark of a call began none."""
        if cut and not self._stream.answers:
            self._thought = self._seen


class Repetition:
    """Watches an answer for a phrase written again and again.

    Found when the last `tokens` tokens have a period of at most half of them: one phrase, twice or more, and nothing
    else. 0 watches for nothing. A token costs O(`tokens`).
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._recent: list[int] = []
        # [p - 1]: how many of the last tokens were each what stood p before.
        self._runs = [0] * (tokens // 2)

    def feed(self, token: int) -> bool:
        """Takes the next token; whether the answer is now a loop."""
        found = False
        for period, run in enumerate(self._runs, 1):
            if period > len(self._recent):
                break
            run = run + 1 if self._recent[-period] == token else 0
            self._runs[period - 1] = run
            found = found or run + period >= self._tokens
        self._recent = [*self._recent, token][-max(len(self._runs), 1) :]
        return found
