"""What is said of a reply once it is over (pure). Law: who logs it chooses whether the words are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specdec_cli.jsonfile import shown
from specdec_cli.serve.http.answer import Answer
from specdec_cli.serve.http.errors import HttpError


@dataclass(frozen=True, slots=True)
class Record:
    """A reply of `path` with its answers; status 499 where the client left, 503 where the server ended.

    `broken` says what failed before there was any, in the operator's words, `refused` names the field or the rule for
    which nothing was done.
    """

    path: str
    status: int
    seconds: float
    answers: tuple[Answer, ...] = ()
    broken: str = ""
    refused: str = ""

    @classmethod
    def of_refusal(cls, path: str, error: HttpError) -> Record:
        """A request that was not let in; what it said is not kept, and its path may be anything."""
        name = shown(path).strip('"')
        return cls(name, error.status, 0.0, broken=error.cause, refused=error.param or error.code or "")

    @property
    def failure(self) -> str:
        """Why the server failed, in the operator's words; empty where it did not."""
        failures = (answer.failure.message for answer in self.answers if answer.failure)
        return self.broken or next(failures, "")

    @property
    def facts(self) -> dict[str, Any]:
        """Figures without words."""
        stats = [answer.stats for answer in self.answers]
        seconds = sum(one.get("decode_seconds") or 0.0 for one in stats)
        emitted = sum(answer.emitted for answer in self.answers)
        return {
            "path": self.path,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "prompt_tokens": sum(len(answer.prompt) for answer in self.answers),
            "cached_tokens": sum(answer.cached for answer in self.answers),
            "emitted_tokens": emitted,
            "tokens_per_second": round((emitted - 1) / seconds, 1) if seconds and emitted > 1 else None,
            "failure": self.failure,
            "refused": self.refused,
            "draft_n": sum(one.get("draft_n", 0) for one in stats),
            "draft_n_accepted": sum(one.get("draft_n_accepted", 0) for one in stats),
        }

    @property
    def words(self) -> dict[str, Any]:
        """Prompt and answers as text; several prompts as a list."""
        if not self.answers:
            return {}
        prompts = [one.model.text(one.prompt) for one in self.answers[:: self.answers[0].ask.choices]]
        return {
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "answers": [answer.finish.text if answer.finish else answer.text for answer in self.answers],
        }


Told = Callable[[Record], None]
