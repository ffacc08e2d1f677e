"""How a dialect writes an answer (pure): a stream says what the whole would, in pieces."""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from specdec_cli.apps.serve.http.answer import ChatRequest, Delta, ServedAnswer
from specdec_cli.apps.serve.http.errors import HttpError, error_body, to_json
from specdec_cli.core.events import RoundDone, to_dict

SSE = "text/event-stream; charset=utf-8"


@dataclass(slots=True)
class Dialect(ABC):
    """One request's answers in a protocol's words; every method gives whole events, of its `media_type`, or nothing.

    `begin` comes once, as soon as a job has started; `read` once its prompt was read; then pieces of any answer.
    """

    ask: ChatRequest
    silence: ClassVar[bytes] = b": still reading\n\n"
    path: ClassVar[str] = "/v1"
    media_type: ClassVar[str] = SSE

    def begin(self) -> bytes:
        """What comes first."""
        return b""

    def read(self, answer: ServedAnswer) -> bytes:
        """The prompt was read."""
        return b""

    @abstractmethod
    def say(self, choice: int, delta: Delta, answer: ServedAnswer) -> bytes:
        """A piece of answer `choice`."""

    def show(self, choice: int, round: RoundDone) -> bytes:
        """A round, for clients that asked to see them; the text it made printable comes after it."""
        return b""

    def close(self, choice: int, answer: ServedAnswer) -> bytes:
        """Answer `choice` is over."""
        return b""

    def end(self, answers: Sequence[ServedAnswer]) -> bytes:
        """All answers are over."""
        return b""

    def failed(self, error: HttpError) -> bytes:
        """An answer failed after the stream began."""
        return event(error_body(self.path, error))

    @abstractmethod
    def whole(self, answers: Sequence[ServedAnswer]) -> dict[str, Any]:
        """The answers at once."""


def event(values: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + to_json(values) + b"\n\n"


def round_values(round: RoundDone) -> dict[str, Any]:
    """A round as the events of `--json` have it."""
    values: dict[str, Any] = json.loads(json.dumps(to_dict(replace(round, gain=None))))
    return values


def new_id(prefix: str) -> str:
    """A name that no other reply has."""
    return f"{prefix}{secrets.token_hex(12)}"


def moment(seconds: float) -> str:
    """A time of the epoch in RFC 3339, with the fraction of a second that Swift's clients of Ollama insist on."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def timings(answers: Sequence[ServedAnswer]) -> dict[str, Any]:
    """llama.cpp's `timings` of all answers together; what was drafted only where something was."""
    stats = [answer.stats for answer in answers]
    cached = sum(answer.cached for answer in answers)
    read_ms = 1e3 * sum(answer.prefill.seconds if answer.prefill else 0.0 for answer in answers)
    decode_ms = 1e3 * sum(one.get("decode_seconds") or 0.0 for one in stats)
    read, emitted = sum(len(answer.prompt) for answer in answers) - cached, sum(answer.emitted for answer in answers)
    found: dict[str, Any] = {"cache_n": cached}
    for what, tokens, ms in (("prompt", read, read_ms), ("predicted", emitted, decode_ms)):
        found[f"{what}_n"], found[f"{what}_ms"] = tokens, round(ms, 3)
        found[f"{what}_per_token_ms"] = round(ms / tokens, 3) if tokens else None
        found[f"{what}_per_second"] = round(1e3 * tokens / ms, 3) if ms else None
    drafted, accepted = (sum(one.get(name, 0) for one in stats) for name in ("draft_n", "draft_n_accepted"))
    return found | ({"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {})


def usage(answers: Sequence[ServedAnswer]) -> dict[str, Any]:
    """OpenAI's `usage`: each prompt once, the answers all; thinking and predictions where there may be any."""
    ask, prompts = answers[0].ask, answers[:: answers[0].ask.choices]
    prompt, emitted = sum(len(one.prompt) for one in prompts), sum(answer.emitted for answer in answers)
    found: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": emitted,
        "total_tokens": prompt + emitted,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached for one in prompts)},
    }
    if from_disk := sum(one.from_disk for one in prompts):
        found["prompt_tokens_details"]["disk_tokens"] = from_disk
    details: dict[str, int] = {}
    if answers[0].thought is not None:
        details["reasoning_tokens"] = sum(answer.thought or 0 for answer in answers)
    if ask.request.predict:
        accepted = sum(answer.stats.get("accepted_by", {}).get("prediction", 0) for answer in answers)
        drafted = sum(answer.stats.get("drafted_by", {}).get("prediction", 0) for answer in answers)
        details |= {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}
    return found | ({"completion_tokens_details": details} if details else {})
