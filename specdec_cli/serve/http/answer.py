"""A desk's events -> what dialects say: thinking, text, calls (pure). Law: nothing is lost, and nothing said twice.

All pieces of one answer joined are the answer of `Session.reply`, but for the tags of thinking and calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec_cli.events import Event, Failure, Finish, Prefill, RoundDone, TokenLogprob
from specdec_cli.models.text import ThinkingCount, ThinkingStream
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.lines import Lines
from specdec_cli.serve.http.tools import Call, CallStream
from specdec_cli.serve.model import Model


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer."""

    text: str


Piece = Thought | Said | Call


@dataclass(slots=True)
class Answer:
    """One answer so far; `feed` it the events of its job."""

    model: Model
    ask: Ask
    prompt: tuple[int, ...]
    thinking: str = ""
    text: str = ""
    calls: list[Call] = field(default_factory=list)
    scores: list[TokenLogprob] = field(default_factory=list)
    rounds: list[RoundDone] = field(default_factory=list)
    prefill: Prefill | None = None
    finish: Finish | None = None
    failure: Failure | None = None
    _told_scores: int = 0
    _thinking: ThinkingStream | None = None
    _thought: ThinkingCount | None = None
    _calls: CallStream | None = None
    _lines: Lines | None = None

    def __post_init__(self) -> None:
        tags = self.model.thinking(self.prompt) if self.ask.text is None else None
        self._thinking = ThinkingStream(tags)
        self._thought = ThinkingCount(tags) if tags else None
        if self.ask.tools:
            self._calls = CallStream(self.model.tokenizer, self.ask.tools)
        if self.ask.lines is not None:
            self._lines = Lines(self.ask.lines)

    @property
    def over(self) -> bool:
        return self.finish is not None or self.failure is not None

    @property
    def full(self) -> bool:
        """Whether it holds all that may be said: further calls are not wanted, or its lines came to an end."""
        return self._called or (self._lines is not None and self._lines.over)

    @property
    def _called(self) -> bool:
        return self.ask.one_call and bool(self.calls)

    def feed(self, event: Event) -> list[Piece]:
        """The pieces that `event` made certain."""
        match event:
            case Prefill():
                self.prefill = event
            case RoundDone():
                self.scores += event.round.logprobs
                if self._thought is not None:
                    pieces = (*event.pieces[: event.round.accepted], event.next_piece)
                    self._thought.feed(pieces[: len(event.round.emitted)])
                if self.ask.rounds:
                    self.rounds.append(event)
                return self._said(event.text)
            case Finish():
                self.finish = event
                return self._said(event.text_tail, last=True)
            case Failure():
                self.failure = event
        return []

    def _said(self, text: str, last: bool = False) -> list[Piece]:
        """Raises: nothing; a broken call is text."""
        assert self._thinking is not None
        parts = self._thinking.feed(text) if text else []
        parts += self._thinking.finish() if last else []
        found: list[Piece] = []
        for thinks, part in parts:
            found += [Thought(part)] if thinks else self._sorted(part)
        if last and self._calls is not None:
            found += [_piece(piece) for piece in self._calls.finish()]
        if last and self._lines is not None and (rest := self._lines.finish()):
            found.append(Said(rest))
        return [piece for piece in found if self._keep(piece)]

    def _sorted(self, text: str) -> list[Piece]:
        if self._lines is not None:
            text = self._lines.feed(text)
            return [Said(text)] if text else []
        return [Said(text)] if self._calls is None else [_piece(piece) for piece in self._calls.feed(text)]

    def _keep(self, piece: Piece) -> bool:
        """Take it into the whole answer, unless no more calls are wanted."""
        if self._called:
            return False
        match piece:
            case Thought(text):
                self.thinking += text
            case Said(text):
                self.text += text
            case Call():
                self.calls.append(piece)
        return True

    def new_scores(self) -> list[TokenLogprob]:
        """The log-probabilities that came since the last call."""
        found, self._told_scores = self.scores[self._told_scores :], len(self.scores)
        return found

    @property
    def stats(self) -> Mapping[str, Any]:
        """The stats of its finish."""
        return self.finish.stats if self.finish else {}

    @property
    def emitted(self) -> int:
        """Tokens that were generated, the stop token included."""
        return int(self.stats.get("emitted_tokens", 0))

    @property
    def thought(self) -> int | None:
        """Tokens until the thinking was closed; None where nothing marks any."""
        return None if self._thought is None else self._thought.tokens

    @property
    def cached(self) -> int:
        """Tokens of the prompt that were in a cache."""
        return self.prefill.cached_tokens if self.prefill else 0

    @property
    def cut(self) -> bool:
        """Whether it ended because it may be no longer."""
        return self.finish is not None and self.finish.reason == "length"

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended it, if one did."""
        finish = self.finish
        if finish is None or finish.reason != "stop" or len(finish.tokens) < self.emitted:
            return None
        said = self.model.text(finish.tokens)
        hits = [(at + len(stop), -len(stop), stop) for stop in self.ask.request.stop if (at := said.find(stop)) >= 0]
        return min(hits)[2] if hits else None


def _piece(piece: str | Call) -> Piece:
    return Said(piece) if isinstance(piece, str) else piece
