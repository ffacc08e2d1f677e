"""What OpenAI's two older endpoints have in common (pure): chunks with choices, and a last one with the sums."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from specdec_cli.events import RoundDone, to_dict
from specdec_cli.serve.http import voice
from specdec_cli.serve.http.answer import Answer
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.errors import HttpError, shaped


@dataclass(slots=True)
class ChunkVoice:
    """The parts of a voice that do not depend on whether a text or a message is said."""

    path: ClassVar[str] = "/v1"
    chunk: ClassVar[str]
    object: ClassVar[str]
    prefix: ClassVar[str]

    ask: Ask
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    silence: bytes = voice.COMMENT
    id: str = ""

    def __post_init__(self) -> None:
        self.id = self.id or voice.new_id(self.prefix)

    def read(self, answer: Answer) -> bytes:
        """How much was read, for clients that asked to see what happens; nobody else waits for it."""
        shown = self.ask.rounds and answer.prefill
        return self.event([], specdec=to_dict(shown)) if shown else b""

    def show(self, choice: int, round: RoundDone) -> bytes:
        """A chunk without choices."""
        return self.event([], specdec={**voice.round_values(round), "choice": choice})

    def finished(self, choice: int, answer: Answer, values: dict[str, Any]) -> bytes:
        """The last chunk of a choice; a single one has the timings."""
        last = {"timings": voice.timings([answer])} if self.ask.choices == 1 else {}
        return self.event([{"index": choice, **values}], **last)

    def end(self, answers: Sequence[Answer]) -> bytes:
        """The sums, where they were asked for."""
        closing = b""
        if self.ask.extra.get("usage"):
            closing = self.event([], usage=voice.usage(answers), timings=voice.timings(answers))
        return closing + b"data: [DONE]\n\n"

    def failed(self, error: HttpError) -> bytes:
        """The error as an event."""
        return voice.event(shaped(self.path, error)) + b"data: [DONE]\n\n"

    def event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        """One chunk."""
        return voice.event({**self._head(self.chunk), "choices": choices, **more})

    def complete(self, choices: list[dict[str, Any]], answers: Sequence[Answer]) -> dict[str, Any]:
        """All of it at once."""
        found = {**self._head(self.object), "choices": choices, "usage": voice.usage(answers)}
        return {**found, "timings": voice.timings(answers), **voice.rounds_of(answers)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
