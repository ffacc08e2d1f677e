"""The fields that say how an answer is drawn and where it ends (pure). Law: honoured, or refused by name.

The same in every dialect, but for the few whose names differ.
"""

from __future__ import annotations

import json
import re
import string
from dataclasses import replace

from specdec_cli.jsonfile import NotJson, parse_object, shown
from specdec_cli.request import BOUNDS, Constraint, Request
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.fields import Fields

# Of an answer whose length nobody names, where the context has room for more.
USUAL_TOKENS = 16_384
MOST_TOKENS, MOST_STOPS, MOST_SEED = 10_000_000, 64, 2**63 - 1
LENGTHS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict")
SAMPLING = (*BOUNDS, "repeat_penalty")
ANY_OBJECT = Constraint("schema", '{"type": "object"}')
# Shapes in GBNF or EBNF, by the names that others have for them.
GRAMMARS = ("grammar", "guided_grammar", "ebnf", "structural_tag")
PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")


def request_of(body: Fields, base: Request, vocab_size: int) -> Request:
    """`base` with what `body` asks for. Raises: HttpError."""
    return replace(
        base,
        max_tokens=_length(body),
        stop=_stops(body),
        seed=body.whole("seed", -MOST_SEED, MOST_SEED),
        sampling={**base.sampling, **_values(body)},
        logit_bias=_bias(body, vocab_size) or base.logit_bias,
    )


def _length(body: Fields) -> int:
    """The longest answer that is asked for; 0 only reads the prompt, -1 is how some say that they do not care."""
    for name in LENGTHS:
        if body.raw(name) != -1 and (length := body.whole(name, 0, MOST_TOKENS)) is not None:
            return length
    return USUAL_TOKENS


def _stops(body: Fields) -> tuple[str, ...]:
    name = "stop_sequences" if body.has("stop_sequences") else "stop"
    stops = body.texts(name)
    if len(stops) > MOST_STOPS:
        raise bad_field(body.named(name), f"{len(stops)} texts, and at most {MOST_STOPS} are watched for")
    return tuple(stop for stop in stops if stop)


def _values(body: Fields) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in SAMPLING:
        known = "repetition_penalty" if name == "repeat_penalty" else name
        low, high, _ = BOUNDS[known]
        if name == "top_k" and body.raw(name) == -1:  # how others say that it is off
            found[name] = 0
        elif name == "top_k":
            found[name] = body.whole(name, int(low), int(high))
        elif (value := body.number(name, low, high)) is not None:
            found[known] = value
    return {name: value for name, value in found.items() if value is not None}


def _bias(body: Fields, vocab_size: int) -> tuple[tuple[int, float], ...]:
    biases = body.inner("logit_bias")
    if biases is None:
        return ()
    found: dict[int, float] = {}
    for name in biases.values:
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < vocab_size):
            raise bad_field("logit_bias", f"{shown(name)} is no token of this model, which has {vocab_size}")
        found[int(name)] = biases.number(name, -100, 100) or 0.0
    return tuple(found.items())


def shape_of(body: Fields) -> tuple[str, Constraint | None]:
    """(the field, its shape): `response_format`, or what llama.cpp, vLLM and SGLang call it. Raises: HttpError."""
    nested = body.inner("structured_outputs") or Fields({}, "structured_outputs")
    for fields in (body, nested):
        fields.refuse(**dict.fromkeys(GRAMMARS, "grammars are not kept; ask for a schema, a guided_regex or a choice"))
    shapes: dict[str, Constraint] = {}
    if (shape := constraint_of(body.inner("response_format"))) is not None:
        shapes["response_format"] = shape
    for fields, name, read in (
        *((body, name, _schema) for name in ("json_schema", "guided_json")),
        *((body, name, _regex) for name in ("guided_regex", "regex")),
        (body, "guided_choice", _choice),
        *((nested, name, read) for name, read in (("json", _schema), ("regex", _regex), ("choice", _choice))),
    ):
        if fields.has(name):
            shapes[fields.named(name)] = read(fields, name)
    if len(shapes) > 1:
        first, second, *_ = shapes
        raise bad_field(second, f"an answer has one shape, and {first} gives it")
    return next(iter(shapes.items()), ("response_format", None))


def _schema(fields: Fields, name: str) -> Constraint:
    """Of a JSON schema, as an object or as text."""
    value = fields.raw(name)
    try:
        return Constraint("schema", json.dumps(value if isinstance(value, dict) else parse_object(fields.needed(name))))
    except NotJson as error:
        raise bad_field(fields.named(name), str(error)) from error


def _regex(fields: Fields, name: str) -> Constraint:
    return Constraint("regex", fields.needed(name))


def _choice(fields: Fields, name: str) -> Constraint:
    """Of texts, one of which is the answer."""
    return Constraint("regex", "|".join(PUNCTUATION.sub(r"\\\g<0>", text) for text in fields.texts(name)))


def constraint_of(shape: Fields | None) -> Constraint | None:
    """Of `response_format`, or of what means the same elsewhere. Raises: HttpError."""
    if shape is None:
        return None
    kind = shape.choice("type", ("text", "json_object", "json_schema"))
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return ANY_OBJECT
    holder = shape.inner("json_schema") or shape  # the flat form is that of /v1/responses
    schema = holder.inner("schema")
    if schema is None:
        raise bad_field(holder.named("schema"), "it is missing, and an object is expected")
    return Constraint("schema", json.dumps(schema.values))


def predicted(body: Fields) -> str:
    """The text that the answer will probably resemble; empty where there is none."""
    prediction = body.inner("prediction")
    if prediction is None:
        return ""
    prediction.choice("type", ("content",))
    content = prediction.raw("content")
    if isinstance(content, str):
        return content
    return "".join(part.needed("text") for part in prediction.each("content"))


def effort_thinks(effort: str | None) -> bool:
    """Whether a reasoning effort asks for thinking at all."""
    return effort not in ("none", "minimal")
