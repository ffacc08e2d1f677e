"""OpenAI's /v1/completions (pure): text, or ids, that are continued as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec_cli.events import TokenLogprob
from specdec_cli.models.fill import Gap
from specdec_cli.serve.http.answer import Answer, Piece, Said
from specdec_cli.serve.http.ask import Ask, Prompt
from specdec_cli.serve.http.chat import MOST_CHOICES, MOST_TOP, wants_usage
from specdec_cli.serve.http.chunks import ChunkVoice
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.fields import Fields
from specdec_cli.serve.http.infill import filled
from specdec_cli.serve.http.sampling import predicted, request_of, shape_of
from specdec_cli.serve.http.scores import text_scores
from specdec_cli.serve.model import Model


def read(body: Fields, model: Model) -> Ask:
    """What the body asks for. Raises: HttpError."""
    body.refuse(echo="the prompt is not repeated, nor are its tokens scored; put it before the answer yourself")
    choices = body.whole("n", 1, MOST_CHOICES) or 1
    if (best := body.whole("best_of", 1, MOST_CHOICES)) not in (None, choices):
        raise bad_field("best_of", f"{best} answers to choose {choices} from are not made; ask for n")
    shape, constraint = shape_of(body)
    request = replace(
        request_of(body, model.base, model.vocab_size),
        constraint=constraint,
        logprobs=body.whole("logprobs", 0, MOST_TOP),
        predict=predicted(body),
    )
    (text, *others), ends, stops = _prompts(body, model)
    if choices * (1 + len(others)) > MOST_CHOICES:
        raise bad_field("prompt", f"{choices * (1 + len(others))} answers, and at most {MOST_CHOICES} are made at once")
    return Ask(
        request=replace(request, stop_tokens=stops),
        text=text,
        others=tuple(others),
        ends=ends,
        shape=shape,
        choices=choices,
        stream=body.flag("stream"),
        rounds=body.flag("specdec"),
        key=body.text("prompt_cache_key"),
        noun="completions",
        extra={"usage": wants_usage(body)},
    )


def _prompts(body: Fields, model: Model) -> tuple[list[Prompt], tuple[int, ...], tuple[int, ...]]:
    """(texts or ids, lengths of what others share of them, tokens that end the answer)."""
    value, after = body.raw("prompt"), body.text("suffix")
    several = isinstance(value, list) and value and all(isinstance(one, str | list) for one in value)
    prompts = [
        one if isinstance(one, str) else token_ids("prompt", one, model) for one in (value if several else [value])
    ]
    if not after:
        return prompts, (), ()
    if len(prompts) > 1 or not isinstance(prompts[0], str):
        raise bad_field("suffix", "it goes with a prompt that is one text")
    filling, stops = filled("suffix", Gap(prompts[0], after), model)
    return [filling.tokens], filling.ends, stops


def token_ids(name: str, value: Any, model: Model) -> tuple[int, ...]:
    """Ids of the model's vocabulary. Raises: HttpError."""
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise bad_field(name, "a text, a list of token ids, or a list of either is expected")
    if foreign := [one for one in value if not 0 <= one < model.vocab_size]:
        raise bad_field(name, f"there is no token {str(foreign[0])[:20]}: the model has {model.vocab_size}")
    return tuple(value)


@dataclass(slots=True)
class TextVoice(ChunkVoice):
    """An answer as a `text_completion`, or as its chunks."""

    chunk, object, prefix = "text_completion", "text_completion", "cmpl-"

    def begin(self) -> bytes:
        """Text has no beginning of its own."""
        return b""

    def say(self, choice: int, piece: Piece, answer: Answer) -> bytes:
        """Text as it comes."""
        assert isinstance(piece, Said)
        scores = self._scores(answer, answer.new_scores())
        return self.event([{"index": choice, "text": piece.text, "logprobs": scores, "finish_reason": None}])

    def close(self, choice: int, answer: Answer) -> bytes:
        """Why it ended."""
        scores = self._scores(answer, answer.new_scores())
        return self.finished(choice, answer, {"text": "", "logprobs": scores, "finish_reason": _reason(answer)})

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """A text each."""
        choices = [
            {
                "index": choice,
                "text": answer.text,
                "logprobs": self._scores(answer, answer.scores),
                "finish_reason": _reason(answer),
            }
            for choice, answer in enumerate(answers)
        ]
        return self.complete(choices, answers)

    def _scores(self, answer: Answer, scores: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.ask.request.logprobs is None:
            return None
        return text_scores(answer.model.tokenizer, scores)


def _reason(answer: Answer) -> str:
    return "length" if answer.cut else "stop"
