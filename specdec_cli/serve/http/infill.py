"""llama.cpp's /infill (pure): what stands before and after a gap, and what belongs into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec_cli.events import RoundDone
from specdec_cli.models.fill import FAMILIES, Filling, Gap
from specdec_cli.serve.http.answer import Answer, ChatRequest, Delta, LineLimits, TextDelta
from specdec_cli.serve.http.dialect import Dialect, event, round_values, rounds_of, timings
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.sampling import request_of
from specdec_cli.serve.http.schema import InfillBody, parse
from specdec_cli.serve.model import Model


def read(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(InfillBody, values)
    if body.n_cmpl != 1:
        raise bad_field("n_cmpl", "one answer is made for a request")
    files = tuple((one.filename, one.text) for one in body.input_extra)
    gap = Gap(body.input_prefix, body.input_suffix, body.prompt, files)
    filling, stops = fill_in("input_suffix", gap, model)
    return ChatRequest(
        request=replace(request_of(body, model.base, model.vocab_size), stop_tokens=stops),
        text=filling.tokens,
        reusable_prefixes=filling.ends,
        lines=LineLimits(body.n_indent, max(body.t_max_predict_ms, 0) / 1e3),
        stream=body.stream,
        rounds=body.specdec,
        endpoint="infill",
        extra={"fields": body.response_fields, "tokens": body.return_tokens},
    )


def fill_in(name: str, gap: Gap, model: Model) -> tuple[Filling, tuple[int, ...]]:
    """(the prompt, the tokens that end its answer). Raises: HttpError, with the field `name`, where none can be."""
    fill = model.fill()
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
        return {
            "index": 0,
            "content": answer.text,
            "tokens": list(finish.tokens) if finish and self.ask.extra.get("tokens") else [],
            "stop": True,
            "model": self.model,
            "tokens_predicted": answer.emitted,
            "tokens_evaluated": len(answer.prompt),
            "tokens_cached": answer.cached,
            "generation_settings": _settings(answer),
            "has_new_line": "\n" in answer.text,
            "truncated": False,
            **_stopped(answer),
            "timings": timings([answer]),
        }

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        """The fields that were asked for, each under its whole path; without any, all."""
        paths: Iterable[str] = self.ask.extra.get("fields", ())
        found = {path: _at(values, path.split("/")) for path in paths}
        return {path: value for path, value in found.items() if value is not None} if found else values


def _at(values: Any, path: Sequence[str]) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _settings(answer: Answer) -> dict[str, Any]:
    request, limit = answer.ask.request, answer.model.context_limit
    sampling = {name: value for name, value in request.sampling.items() if value is not None}
    return {"n_ctx": limit, "n_predict": request.max_tokens, "seed": request.seed, "stop": request.stop, **sampling}


def _stopped(answer: Answer) -> dict[str, Any]:
    word = answer.stop_string
    own = answer.finish is not None and answer.finish.reason == "stop" and not answer.full
    return {"stop_type": ("eos" if word is None else "word") if own else "limit", "stopping_word": word or ""}
