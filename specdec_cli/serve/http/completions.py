"""OpenAI's /v1/completions (pure): text, or ids, that are continued as they are."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.events import RoundDone, TokenLogprob
from specdec_cli.serve.http import voice
from specdec_cli.serve.http.answer import Answer, Piece, Said
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.chat import MOST_CHOICES, MOST_TOP, wants_usage
from specdec_cli.serve.http.errors import HttpError, bad_field, shaped
from specdec_cli.serve.http.fields import Fields
from specdec_cli.serve.http.sampling import constraint_of, predicted, request_of
from specdec_cli.serve.http.scores import text_scores
from specdec_cli.serve.model import Model

PATH = "/v1/completions"


def read(body: Fields, model: Model) -> Ask:
    """What the body asks for. Raises: HttpError."""
    body.refuse(
        suffix="filling in between two texts is not offered yet; send the text before it as prompt",
        echo="the prompt is not repeated; put it before the answer yourself",
    )
    choices = body.whole("n", 1, MOST_CHOICES) or 1
    if (best := body.whole("best_of", 1, MOST_CHOICES)) not in (None, choices):
        raise bad_field("best_of", f"{best} answers to choose {choices} from are not made; ask for n")
    request = replace(
        request_of(body, model.base, model.vocab_size),
        constraint=constraint_of(body.inner("response_format")),
        logprobs=body.whole("logprobs", 0, MOST_TOP),
        predict=predicted(body),
    )
    return Ask(
        request=request,
        text=_prompt(body, model),
        choices=choices,
        stream=body.flag("stream"),
        rounds=body.flag("specdec"),
        key=body.text("prompt_cache_key"),
        noun="completions",
        extra={"usage": wants_usage(body)},
    )


def _prompt(body: Fields, model: Model) -> str | tuple[int, ...]:
    """A text, ids, or a list of one of either."""
    value = body.raw("prompt")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    return token_ids("prompt", value, model)


def token_ids(name: str, value: Any, model: Model) -> tuple[int, ...]:
    """Ids of the model's vocabulary. Raises: HttpError."""
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise bad_field(name, "one text, or one list of token ids, is expected")
    if foreign := [one for one in value if not 0 <= one < model.vocab_size]:
        raise bad_field(name, f"there is no token {str(foreign[0])[:20]}: the model has {model.vocab_size}")
    return tuple(value)


@dataclass(slots=True)
class TextVoice:
    """An answer as a `text_completion`, or as its chunks."""

    ask: Ask
    model: str
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    silence: bytes = voice.COMMENT

    def begin(self) -> bytes:
        return b""

    def read(self, answer: Answer) -> bytes:
        return b""

    def say(self, choice: int, piece: Piece, answer: Answer) -> bytes:
        assert isinstance(piece, Said)
        one = {"index": choice, "text": piece.text, "logprobs": self._scores(answer, answer.new_scores())}
        return voice.event({**self._head(), "choices": [{**one, "finish_reason": None}]})

    def show(self, choice: int, round: RoundDone) -> bytes:
        return voice.event({**self._head(), "choices": [], "specdec": {**voice.round_values(round), "choice": choice}})

    def close(self, choice: int, answer: Answer) -> bytes:
        last = {"timings": voice.timings([answer])} if self.ask.choices == 1 else {}
        ended = {"index": choice, "text": "", "logprobs": self._scores(answer, answer.new_scores())}
        return voice.event({**self._head(), "choices": [{**ended, "finish_reason": _reason(answer)}], **last})

    def end(self, answers: Sequence[Answer]) -> bytes:
        totals = {"usage": voice.usage(answers), "timings": voice.timings(answers)}
        closing = voice.event({**self._head(), "choices": [], **totals}) if self.ask.extra.get("usage") else b""
        return closing + b"data: [DONE]\n\n"

    def failed(self, error: HttpError) -> bytes:
        return voice.event(shaped(PATH, error)) + b"data: [DONE]\n\n"

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        choices = [
            {
                "index": choice,
                "text": answer.text,
                "logprobs": self._scores(answer, answer.scores),
                "finish_reason": _reason(answer),
            }
            for choice, answer in enumerate(answers)
        ]
        found = {**self._head(), "choices": choices, "usage": voice.usage(answers), "timings": voice.timings(answers)}
        if self.ask.rounds:
            found["specdec"] = [voice.round_values(round) for answer in answers for round in answer.rounds]
        return found

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}

    def _scores(self, answer: Answer, scores: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.ask.request.logprobs is None:
            return None
        return text_scores(answer.model.tokenizer, scores)


def _reason(answer: Answer) -> str:
    return "length" if answer.cut else "stop"
