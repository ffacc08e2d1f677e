"""A conversation (pure). The message list is the truth; what a model reads is rendered from it, turn by turn.

Thinking is kept beside an answer, never in it: the chat template decides whether later turns see any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specdec_cli.core.errors import DoesNotFit
from specdec_cli.pairs.limits import too_long

Message = Mapping[str, str]
Render = Callable[[Sequence[Message]], list[int]]
Overflow = Literal["refuse", "drop-oldest"]
OVERFLOWS: tuple[Overflow, ...] = ("refuse", "drop-oldest")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer's text, the reason of its end, and `facts` for a transcript: pair, settings, stats."""

    text: str
    thinking: str = ""
    reason: str = "stop"
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> Message:
        """As a template takes it; the two names are those that templates look for."""
        thinking = {"reasoning_content": self.thinking, "thinking": self.thinking} if self.thinking else {}
        return {"role": "assistant", "content": self.text, **thinking}


@dataclass(frozen=True, slots=True)
class Turn:
    """One message and its answer; `attempt` counts how often another answer was asked for."""

    user: str
    answer: Answer
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt that leaves room for an answer, and how many of the oldest turns it leaves out."""

    ids: list[int]
    left_out: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """All turns. The first `left_out` are no longer sent, since the context is too short for them."""

    system: str | None = None
    turns: tuple[Turn, ...] = ()
    left_out: int = 0

    def messages(self, user: str, left_out: int | None = None) -> list[Message]:
        """The messages to render when `user` is asked next."""
        found: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns[self.left_out if left_out is None else left_out :]:
            found += [{"role": "user", "content": turn.user}, turn.answer.message]
        return [*found, {"role": "user", "content": user}]

    def fit(self, user: str, render: Render, limit: int | None, max_tokens: int, overflow: Overflow) -> Fitted:
        """The ids of the conversation with `user` asked next, shorter than `limit`, None being endless.

        `drop-oldest` makes room for `max_tokens`, or for a quarter of the context if that is less. Leaving turns out
        means that all later ones are read anew, so it frees another quarter: the next turns need not do it again.
        The system message and `user` always stay.
        Raises: DoesNotFit with both numbers.
        """
        left_out = self.left_out
        ids = render(self.messages(user, left_out))
        if limit is None:
            return Fitted(ids, left_out)
        room = limit - min(max_tokens, limit // 4)
        if overflow == "drop-oldest" and len(ids) > room:
            while len(ids) > room - limit // 4 and left_out < len(self.turns):
                left_out += 1
                ids = render(self.messages(user, left_out))
        if len(ids) >= limit:
            hint = "/set overflow drop-oldest leaves the oldest turns out; /clear starts anew"
            if overflow == "drop-oldest" or not self.turns:
                hint = "shorten the message" + (" or the system message" if self.system else "")
            raise DoesNotFit(too_long(len(ids), limit), hint)
        return Fitted(ids, left_out)

    def with_turn(self, turn: Turn, left_out: int) -> Conversation:
        """One turn more."""
        return replace(self, turns=(*self.turns, turn), left_out=left_out)

    def without_last(self) -> Conversation:
        """The last turn taken back. A turn that was left out is sent again only when all later ones are gone."""
        turns = self.turns[:-1]
        return replace(self, turns=turns, left_out=min(self.left_out, max(len(turns) - 1, 0)))
