"""Text that is continued as it is: OpenAI's /v1/completions, and llama.cpp's /infill, which fills a gap (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from specdec_cli.events import RoundDone, TokenLogprob
from specdec_cli.models.fill import FAMILIES, Fill, Filling, Gap
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.serve.http.answer import Answer, ChatRequest, Delta, LineLimits, Prompt, TextDelta
from specdec_cli.serve.http.dialect import ChunkDialect, Dialect, event, finite, round_values, rounds_of, timings
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.sampling import chat_request, request_of, shape_of
from specdec_cli.serve.http.schema import MOST_CHOICES, InfillBody, TextBody, parse, required
from specdec_cli.serve.model import Model


def read(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(TextBody, values)
    if body.best_of not in (None, body.n):
        raise bad_field("best_of", f"{body.best_of} answers to choose {body.n} from are not made; ask for n")
    shape, constraint = shape_of(body)
    (text, *others), prefixes, stops = _prompts(body, model)
    if body.n * (1 + len(others)) > MOST_CHOICES:
        raise bad_field("prompt", f"{body.n * (1 + len(others))} answers, and at most {MOST_CHOICES} are made at once")
    more = {"constraint": constraint, "logprobs": body.logprobs, "stop_tokens": stops}
    return chat_request(
        body,
        model,
        "completions",
        request_of(body, model.base, model.vocab_size, **more),
        text=text,
        others=tuple(others),
        source="prompt",
        reusable_prefixes=prefixes,
        shape=shape,
        choices=body.n,
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


def read_infill(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(InfillBody, values)
    files = tuple(
        (one.filename, required(one.text, f"input_extra[{place}].text")) for place, one in enumerate(body.input_extra)
    )
    filling, stops = fill_in("input_suffix", Gap(body.input_prefix, body.input_suffix, body.prompt, files), model)
    return chat_request(
        body,
        model,
        "infill",
        request_of(body, model.base, model.vocab_size, stop_tokens=stops),
        text=filling.tokens,
        source="input_prefix",
        reusable_prefixes=filling.ends,
        lines=LineLimits(body.n_indent, max(body.t_max_predict_ms, 0) / 1e3),
        extra={"fields": body.response_fields, "tokens": body.return_tokens},
    )


def fill_in(name: str, gap: Gap, model: Model) -> tuple[Filling, tuple[int, ...]]:
    """(the prompt, the tokens that end its answer). Raises: HttpError, with the field `name`, where none can be."""
    fill = Fill.of(model.tokenizer)
    if fill is None:
        known = ", ".join(dict.fromkeys(family.prefix for family in FAMILIES))
        raise bad_field(name, f"{model.name} has no tokens for filling in: it would need one of {known}")
    return fill.prompt(gap), fill.stop_tokens


@dataclass(slots=True)
class InfillDialect(Dialect):
    """An answer in the shape of llama.cpp's own completions; a stream ends with its last chunk."""

    path = "/infill"

    def say(self, choice: int, delta: Delta, answer: Answer) -> bytes:
        assert isinstance(delta, TextDelta)
        read = {"tokens_evaluated": len(answer.prompt)}
        return event({"index": choice, "content": delta.text, "stop": False, **read})

    def show(self, choice: int, round: RoundDone) -> bytes:
        return event({"index": choice, "content": "", "stop": False, "specdec": round_values(round)})

    def close(self, choice: int, answer: Answer) -> bytes:
        """All that is known of it; the text was said."""
        return event(self._shown(self._all(answer) | {"index": choice, "content": ""}))

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        return self._shown(self._all(answers[0]) | rounds_of(answers))

    def _all(self, answer: Answer) -> dict[str, Any]:
        finish = answer.finish
        request, word = answer.ask.request, answer.stop_string
        sampling = {name: value for name, value in request.sampling.items() if value is not None}
        settings = {"n_ctx": answer.model.context_limit, "n_predict": request.max_tokens, "seed": request.seed}
        own = finish is not None and finish.reason == "stop" and not answer.full
        return {
            "index": 0,
            "content": answer.text,
            "tokens": list(finish.tokens) if finish and self.ask.extra.get("tokens") else [],
            "stop": True,
            "model": self.ask.model,
            "tokens_predicted": answer.emitted,
            "tokens_evaluated": len(answer.prompt),
            "tokens_cached": answer.cached,
            "generation_settings": {**settings, "stop": request.stop, **sampling},
            "has_new_line": "\n" in answer.text,
            "truncated": False,
            "stop_type": ("eos" if word is None else "word") if own else "limit",
            "stopping_word": word or "",
            "timings": timings([answer]),
        }

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        """The fields that were asked for, each under its whole path; without any, all."""
        found: dict[str, Any] = {}
        for path in self.ask.extra.get("fields", ()):
            value: Any = values
            for key in path.split("/"):
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                found[path] = value
        return found if self.ask.extra.get("fields") else values
