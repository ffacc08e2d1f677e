"""What every dialect asks alike (pure): messages, how an answer is drawn, its end and its shape.

Every word reaches the template, or is refused; so is a field that cannot be honoured, by name. Templates take texts as
`content`, the arguments of calls as objects, and leading instructions as one system message.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdec_cli.apps.serve.http.answer import ChatRequest
from specdec_cli.apps.serve.http.errors import bad_field
from specdec_cli.apps.serve.http.schema import Asked, Format
from specdec_cli.apps.serve.http.tools import ToolOffer
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.jsonfile import NotJson, parse_object, shown
from specdec_cli.core.request import BOUNDS, Constraint, Request
from specdec_cli.models.turns import Message

# Of an answer whose length nobody names, where context and memory have room for more.
USUAL_TOKENS = 16_384
LENGTHS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict")
FORMATS = ("text", "json_object", "json_schema")
PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")


def chat_request(
    body: Asked, model: Model, endpoint: str, request: Mapping[str, Any], offer: ToolOffer | None = None, **more: Any
) -> ChatRequest:
    """What `body` asks for: what dialects have in common, and `more`; so of its request. Raises: HttpError."""
    choice, offer = body.tool_choice, offer or ToolOffer()
    return ChatRequest(
        request=request_of(body, model, **request),
        truncated=body.truncate_prompt_tokens,
        tools=offer.functions,
        must_call=offer.must,
        one_call=not body.parallel_tool_calls or bool(choice and choice.disable_parallel_tool_use),
        stream=body.stream,
        rounds=body.specdec,
        conversation_id=body.prompt_cache_key,
        endpoint=endpoint,
        open_ended=length_of(body) is None,
        **more,
    )


def length_of(body: Asked) -> int | None:
    """The tokens of the longest answer that is asked for; None where nobody names any."""
    return next((length for name in LENGTHS if (length := getattr(body, name)) is not None), None)


def request_of(body: Asked, model: Model, **more: Any) -> Request:
    """The model's own with what `body` asks for, and `more`. Raises: HttpError."""
    base, vocab_size, length = model.base, model.vocab_size, length_of(body)
    values = {name: getattr(body, name) for name in BOUNDS}
    if body.repeat_penalty is not None:
        values["repetition_penalty"] = body.repeat_penalty
    bias: dict[int, float] = {}
    for name, value in body.logit_bias:
        ids = model.tokenizer.continuation(name) if isinstance(name, str) else [name]
        given = dict.fromkeys(require_tokens("logit_bias", ids, vocab_size), -math.inf if value is None else value)
        bias |= given
    ends = require_tokens("stop_token_ids", body.stop_token_ids, vocab_size)
    return replace(
        base,
        max_tokens=USUAL_TOKENS if length is None else length,
        stop=tuple(filter(None, body.stop_sequences or body.stop)),
        seed=body.seed,
        sampling={**base.sampling, **{name: value for name, value in values.items() if value is not None}},
        logit_bias=tuple(bias.items()) or base.logit_bias,
        predict="".join(part.text for part in body.prediction.content) if body.prediction else "",
        stop_tokens=(*more.pop("stop_tokens", ()), *ends),
        ignore_eos=body.ignore_eos,
        min_tokens=body.min_tokens or body.min_new_tokens or 0,
        bad_words=tuple(filter(None, body.bad_words)),
        **more,
    )


def require_tokens(name: str, ids: Sequence[int], vocab_size: int) -> Sequence[int]:
    """The same ids. Raises: HttpError with the field `name` for one that is none."""
    if foreign := [one for one in ids if not 0 <= one < vocab_size]:
        raise bad_field(name, f"{foreign[0]} is not a token of this model, which has {vocab_size}")
    return ids


def shape(kind: str, value: Any) -> Constraint | None:
    """Of a `schema`, a `regex`, or a `choice` of texts; None where nothing is asked for."""
    if value is None or value == []:
        return None
    if kind == "choice":
        return Constraint("regex", "|".join(PUNCTUATION.sub(r"\\\g<0>", text) for text in value))
    return Constraint("regex", value) if kind == "regex" else Constraint("schema", json.dumps(value))


def constraint_of(given: Format | None, name: str) -> Constraint | None:
    """Of the format in the field `name`. Raises: HttpError."""
    if given is None or given.type in (None, "text"):
        return None
    if given.type not in FORMATS:
        raise bad_field(f"{name}.type", f"{shown(given.type)} is none of {', '.join(FORMATS)}")
    holder, path = (given.json_schema, f"{name}.json_schema") if given.json_schema else (given, name)
    if given.type == "json_object" and holder.shape is None:
        return Constraint("schema", '{"type": "object"}')
    if holder.shape is None:
        raise bad_field(f"{path}.schema", "it is missing, but an object is expected")
    return shape("schema", holder.shape)


def assistant(text: str, thinking: str = "", calls: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A message of the model's; the two names of thinking are those that templates look for."""
    thought = {"reasoning_content": thinking, "thinking": thinking} if thinking else {}
    return {"role": "assistant", "content": text, **thought, **({"tool_calls": list(calls)} if calls else {})}


def result(identity: str, text: str, name: str = "") -> dict[str, Any]:
    """What the function of a call returned."""
    return {"role": "tool", "content": text, "tool_call_id": identity, **({"name": name} if name else {})}


def call(identity: str, name: str, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """A call as templates take it: its arguments as an object where they are one."""
    if isinstance(arguments, str):
        try:
            arguments = parse_object(arguments or "{}")
        except NotJson:
            pass  # what a model once wrote wrongly goes back to it as it was
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Leading instructions as one message, and results with the ids and names of what they answer.

    A result of no known id, as Ollama's clients send it, is that of the first call of its name that waits for one;
    without a name, too, of the first that waits.
    """
    found: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    waiting: list[str] = []  # the ids of the turn's calls
    for message in messages:
        if len(found) == 1 and found[0]["role"] == message["role"] == "system":
            found[0]["content"] += "\n\n" + message["content"]
            continue
        if message["role"] == "tool":
            identity, name = message["tool_call_id"], message.get("name", "")
            if identity not in names:
                nameless = not (identity or name)
                identity = next((one for one in waiting if nameless or names[one] == name), identity or name)
            if identity in waiting:
                waiting.remove(identity)
            message = result(identity, message["content"], names.get(identity) or name)
        elif found and found[-1]["role"] != "assistant":
            waiting.clear()
        for one in message.get("tool_calls", ()):
            names[one["id"]] = one["function"]["name"]
            waiting.append(one["id"])
        found.append(dict(message))
    return tuple(found)
