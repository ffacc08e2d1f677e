"""What every dialect asks alike: how an answer is drawn, its end, its shape (pure): honoured, or refused by name."""

from __future__ import annotations

import json
import re
import string
from dataclasses import replace
from typing import Any

from specdec_cli.jsonfile import shown
from specdec_cli.request import BOUNDS, Constraint, Request
from specdec_cli.serve.http.answer import ChatRequest
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.schema import Asked, Format, Options, Part, Shaped, required
from specdec_cli.serve.http.tools import Offer
from specdec_cli.serve.model import Model

# Of an answer whose length nobody names, where the context has room for more.
USUAL_TOKENS = 16_384
LENGTHS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict")
FORMATS = ("text", "json_object", "json_schema")
PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")


def chat_request(
    body: Asked, model: Model, endpoint: str, request: Request | None = None, offer: Offer | None = None, **more: Any
) -> ChatRequest:
    """What `body` asks for: what dialects have in common, and `more`. Raises: HttpError."""
    choice, offer = body.tool_choice, offer or Offer()
    return ChatRequest(
        request=request or request_of(body, model.base, model.vocab_size),
        tools=offer.functions,
        must_call=offer.must,
        one_call=not body.parallel_tool_calls or bool(choice and choice.disable_parallel_tool_use),
        stream=body.stream,
        rounds=body.specdec,
        conversation_id=body.prompt_cache_key,
        endpoint=endpoint,
        **more,
    )


def request_of(body: Asked, base: Request, vocab_size: int, **more: Any) -> Request:
    """`base` with what `body` asks for, and `more`. Raises: HttpError."""
    lengths = (length for name in LENGTHS if (length := getattr(body, name)) is not None)
    values = {name: getattr(body, name) for name in BOUNDS}
    if body.repeat_penalty is not None:
        values["repetition_penalty"] = body.repeat_penalty
    bias = {}
    for name, value in body.logit_bias.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < vocab_size):
            raise bad_field("logit_bias", f"{shown(name)} is no token of this model, which has {vocab_size}")
        bias[int(name)] = value
    return replace(
        base,
        max_tokens=next(lengths, USUAL_TOKENS),
        stop=tuple(filter(None, body.stop_sequences or body.stop)),
        seed=body.seed,
        sampling={**base.sampling, **{name: value for name, value in values.items() if value is not None}},
        logit_bias=tuple(bias.items()) or base.logit_bias,
        predict=predicted(body.prediction),
        **more,
    )


def shape_of(body: Shaped) -> tuple[str, Constraint | None]:
    """(the field, its shape): `response_format`, or what llama.cpp, vLLM and SGLang call it. Raises: HttpError."""
    nested = body.structured_outputs
    given: dict[str, Constraint | None] = {
        "response_format": constraint_of(body.response_format, "response_format"),
        "json_schema": _constraint("schema", body.json_schema),
        "guided_json": _constraint("schema", body.guided_json),
        "guided_regex": _constraint("regex", body.guided_regex),
        "regex": _constraint("regex", body.regex),
        "guided_choice": _constraint("choice", body.guided_choice),
        "structured_outputs.json": _constraint("schema", nested.schema_),
        "structured_outputs.regex": _constraint("regex", nested.regex),
        "structured_outputs.choice": _constraint("choice", nested.choice),
    }
    shapes = {name: shape for name, shape in given.items() if shape is not None}
    if len(shapes) > 1:
        first, second, *_ = shapes
        raise bad_field(second, f"an answer has one shape, and {first} gives it")
    return next(iter(shapes.items()), ("response_format", None))


def _constraint(kind: str, value: Any) -> Constraint | None:
    if value is None or value == []:
        return None
    if kind == "choice":
        return Constraint("regex", "|".join(PUNCTUATION.sub(r"\\\g<0>", text) for text in value))
    return Constraint("regex", value) if kind == "regex" else Constraint("schema", json.dumps(value))


def constraint_of(shape: Format | None, name: str) -> Constraint | None:
    """Of the format in the field `name`. Raises: HttpError."""
    if shape is None or shape.type == "text":
        return None
    if shape.type not in FORMATS:
        raise bad_field(f"{name}.type", f"{shown(shape.type)} is none of {', '.join(FORMATS)}")
    if shape.type == "json_object":
        return Constraint("schema", '{"type": "object"}')
    holder, path = (shape.json_schema, f"{name}.json_schema") if shape.json_schema else (shape, name)
    if holder.shape is None:
        raise bad_field(f"{path}.schema", "it is missing, and an object is expected")
    return _constraint("schema", holder.shape)


def predicted(prediction: Part | None) -> str:
    """The text that the answer will probably resemble; empty where there is none. Raises: HttpError."""
    if prediction is None:
        return ""
    if prediction.type not in ("", "content"):
        raise bad_field("prediction.type", f"{shown(prediction.type)} is none of content")
    parts = enumerate(prediction.content)
    return "".join(required(part.text, f"prediction.content[{place}].text") for place, part in parts)


def thinks(template: Options, effort: str | None) -> bool:
    """Whether the template may let the model think: by the effort, or by what others send for it."""
    return effort not in ("none", "minimal") if template.enable_thinking is None else template.enable_thinking
