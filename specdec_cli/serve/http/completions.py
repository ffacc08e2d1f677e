"""OpenAI's /v1/completions (pure): text, or ids, that are continued as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from specdec_cli.events import TokenLogprob
from specdec_cli.models.fill import Gap
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.serve.http.answer import Answer, ChatRequest, Delta, Prompt, TextDelta
from specdec_cli.serve.http.dialect import ChunkDialect, finite
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.infill import fill_in
from specdec_cli.serve.http.sampling import request_of, shape_of
from specdec_cli.serve.http.schema import MOST_CHOICES, TextBody, parse
from specdec_cli.serve.model import Model


def read(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(TextBody, values)
    if body.best_of not in (None, body.n):
        raise bad_field("best_of", f"{body.best_of} answers to choose {body.n} from are not made; ask for n")
    shape, constraint = shape_of(body)
    request = request_of(body, model.base, model.vocab_size)
    (text, *others), prefixes, stops = _prompts(body, model)
    if body.n * (1 + len(others)) > MOST_CHOICES:
        raise bad_field("prompt", f"{body.n * (1 + len(others))} answers, and at most {MOST_CHOICES} are made at once")
    return ChatRequest(
        request=replace(request, constraint=constraint, logprobs=body.logprobs, stop_tokens=stops),
        text=text,
        others=tuple(others),
        reusable_prefixes=prefixes,
        shape=shape,
        choices=body.n,
        stream=body.stream,
        rounds=body.specdec,
        conversation_id=body.prompt_cache_key,
        endpoint="completions",
        extra={"usage": body.stream_options.include_usage},
    )


def _prompts(body: TextBody, model: Model) -> tuple[list[Prompt], tuple[int, ...], tuple[int, ...]]:
    """(texts or ids, lengths of what others share of them, tokens that end the answer)."""
    value = body.prompt
    several = isinstance(value, list) and value and all(isinstance(one, str | list) for one in value)
    prompts = [
        one if isinstance(one, str) else token_ids("prompt", one, model) for one in (value if several else [value])
    ]
    if not body.suffix:
        return prompts, (), ()
    if len(prompts) > 1 or not isinstance(prompts[0], str):
        raise bad_field("suffix", "it goes with a prompt that is one text")
    filling, stops = fill_in("suffix", Gap(prompts[0], body.suffix), model)
    return [filling.tokens], filling.ends, stops


def token_ids(name: str, value: Any, model: Model) -> tuple[int, ...]:
    """Ids of the model's vocabulary. Raises: HttpError."""
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise bad_field(name, "a text, a list of token ids, or a list of either is expected")
    if foreign := [one for one in value if not 0 <= one < model.vocab_size]:
        raise bad_field(name, f"there is no token {str(foreign[0])[:20]}: the model has {model.vocab_size}")
    return tuple(value)


@dataclass(slots=True)
class TextDialect(ChunkDialect):
    """An answer as a `text_completion`, or as its chunks."""

    chunk, object, prefix = "text_completion", "text_completion", "cmpl-"

    def say(self, choice: int, delta: Delta, answer: Answer) -> bytes:
        assert isinstance(delta, TextDelta)
        return self.event([self.choice(choice, {"text": delta.text}, answer, answer.new_scores(), None)])

    def last(self, choice: int) -> dict[str, Any]:
        return {"text": ""}

    def content(self, answer: Answer) -> dict[str, Any]:
        return {"text": answer.text}

    def table(self, tokenizer: Tokenizer, scores: Sequence[TokenLogprob]) -> dict[str, Any]:
        texts = [tokenizer.piece(score.token) for score in scores]
        tops = [{tokenizer.piece(token): finite(logprob) for token, logprob in score.top} for score in scores]
        return {
            "tokens": texts,
            "token_logprobs": [finite(score.logprob) for score in scores],
            "top_logprobs": tops,
            "text_offset": [*accumulate(map(len, texts), initial=0)][:-1],
        }
