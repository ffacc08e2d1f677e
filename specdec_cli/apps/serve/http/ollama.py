"""Ollama's /api (pure): a body read, an answer written as an object or as lines of its pieces, and what is here."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BeforeValidator, FailFast, Field

from specdec_cli.apps.serve.http import reading
from specdec_cli.apps.serve.http.answer import Call, ChatRequest, Delta, ReasoningDelta, ServedAnswer, TextDelta
from specdec_cli.apps.serve.http.completions import ChatBody, ChatMessage, fill_in, messages_of, shape_of
from specdec_cli.apps.serve.http.dialect import Dialect, moment
from specdec_cli.apps.serve.http.errors import OLLAMA, HttpError, bad_field, error_body, to_json
from specdec_cli.apps.serve.http.schema import FEW, Length, Schema, parse
from specdec_cli.apps.serve.http.tools import openai_offer
from specdec_cli.apps.serve.job import SchedulerStatus
from specdec_cli.apps.serve.model import Model, Switch, public_name
from specdec_cli.core.format import parameters
from specdec_cli.core.jsonfile import kind_of
from specdec_cli.core.template import EFFORT, SWITCHES, TemplateValues
from specdec_cli.models.checkpoint import text_config
from specdec_cli.models.fill import Fill, Gap

# Clients leave servers that are too old: the version of Ollama whose protocol this is.
VERSION = {"version": "0.14.2", "server": "specdec"}
CHAT, GENERATE = f"{OLLAMA}/chat", f"{OLLAMA}/generate"
# What is said of addresses that nothing answers.
HERE = "of Ollama's there are chat, generate, tags, show, ps and version"
ELSEWHERE = {
    "pull": "specdec pull downloads models",
    "delete": "specdec rm removes models",
    **dict.fromkeys(("create", "copy", "push", "blobs"), "models are neither made nor sent here"),
    **dict.fromkeys(("embed", "embeddings"), "embeddings are not made here"),
}
# What clients say for no time at all, for a shape, and for a length without an end.
AT_ONCE = re.compile(r'-?0(\.0)?|"[+-]?(0+(\.0*)?(ns|us|µs|ms|s|m|h)?)+"')
SHAPES, ENDLESS = {"": None, "json": {"type": "object"}}, (-1, -2)
# Go's longest duration, which Ollama adds where a model stays.
FOREVER_SECONDS = 2**63 / 1e9


def _message(value: Any) -> Any:
    """A message as OpenAI's clients write it."""
    if not isinstance(value, dict):
        return value
    image = [{"type": "image"}] if value.get("images") else []
    content = [{"type": "text", "text": value.get("content") or ""}, *image]
    return {"name": value.get("tool_name"), **value, "content": content, "reasoning_content": value.get("thinking")}


class OllamaBody(ChatBody):
    """Of /api/chat and /api/generate; their `options` stand beside the other fields."""

    REFUSED = {
        **ChatBody.REFUSED,
        "context": "answers are not continued by their tokens; /api/chat takes the whole conversation",
        "images": "they cannot be read: the model reads text only",
        "logprobs": "/v1/chat/completions gives them",
        "template": "the model's own is used; raw takes a prompt as it is",
    }
    messages: Annotated[list[Annotated[ChatMessage, BeforeValidator(_message)]], FailFast(), FEW] = []
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: bool = False
    stream: bool = True
    unloads: Annotated[
        bool, BeforeValidator(lambda value: bool(AT_ONCE.fullmatch(json.dumps(value, ensure_ascii=False))))
    ] = Field(default=False, alias="keep_alive")
    max_tokens: Annotated[Length, BeforeValidator(lambda value: None if value in ENDLESS else value)] = Field(
        default=None, alias="num_predict"
    )
    json_schema: Annotated[
        Schema | None, BeforeValidator(lambda value: SHAPES.get(value, value) if isinstance(value, str) else value)
    ] = Field(default=None, alias="format")
    think: Annotated[
        str | None, BeforeValidator(lambda value: ("off", "on")[value] if isinstance(value, bool) else value)
    ] = None


def read_chat(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = _body(values)
    if not body.messages:
        return _ask(body, model, CHAT, text="")
    return _ask(body, model, CHAT, offer=openai_offer(body, nested=True), messages=messages_of(body))


def read_generate(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = _body(values)
    if body.suffix:
        filling, stops = fill_in("suffix", Gap(body.prompt, body.suffix), model)
        return _ask(body, model, GENERATE, stops, text=filling.tokens, reusable_prefixes=filling.ends)
    if body.raw or not body.prompt:
        return _ask(body, model, GENERATE, text=body.prompt)
    told = (("system", body.system), ("user", body.prompt))
    messages = tuple({"role": role, "content": text} for role, text in told if text)
    return _ask(body, model, GENERATE, messages=messages)


def _body(values: Mapping[str, Any]) -> OllamaBody:
    """Raises: HttpError."""
    options = values.get("options") or {}
    if not isinstance(options, dict):
        raise bad_field("options", f"it is {kind_of(options)}, but an object is expected")
    return parse(OllamaBody, {**options, **{name: value for name, value in values.items() if value is not None}})


def _ask(body: OllamaBody, model: Model, endpoint: str, stops: Sequence[int] = (), **more: Any) -> ChatRequest:
    """With an empty text nothing is asked but that the model be loaded, or unloaded: it reads any."""
    if more.get("text") == "":
        body = body.model_copy(update={"max_tokens": 0, "json_schema": None})
        more = {"text": "?", "extra": {"loads": True}}
    request = {"constraint": shape_of(body)[1], "stop_tokens": stops}
    source = "messages" if endpoint == CHAT else "prompt"
    more = {"template": TemplateValues.of_word(body.think), "shape": "format", "source": source, **more}
    more["unloads"] = body.unloads
    return reading.chat_request(body, model, endpoint.strip("/"), request, **more)


@dataclass(slots=True)
class LineDialect(Dialect):
    """An answer as an object; streamed, each piece is one, in a line of its own."""

    path, media_type = OLLAMA, "application/x-ndjson"
    silence = b" "  # a line that is not over: clients read each as an object
    began: float = field(default_factory=time.monotonic)

    def say(self, choice: int, delta: Delta, answer: ServedAnswer) -> bytes:
        match delta:
            case ReasoningDelta(text):
                return self._line({"done": False}, thinking=text)
            case TextDelta(text):
                return self._line({"done": False}, text)
        return self._line({"done": False}, tool_calls=[_call(delta)])

    def end(self, answers: Sequence[ServedAnswer]) -> bytes:
        return self._line(self._sums(answers[0]))

    def failed(self, error: HttpError) -> bytes:
        return to_json(error_body(self.path, error)) + b"\n"

    def whole(self, answers: Sequence[ServedAnswer]) -> dict[str, Any]:
        (answer,) = answers
        more: dict[str, Any] = {"thinking": answer.thinking} if answer.thinking else {}
        more |= {"tool_calls": [*map(_call, answer.calls)]} if answer.calls else {}
        return self._said(self._sums(answer), answer.text, **more)

    def _line(self, rest: Mapping[str, Any], text: str = "", **more: Any) -> bytes:
        return to_json(self._said(rest, text, **more)) + b"\n"

    def _said(self, rest: Mapping[str, Any], text: str, **more: Any) -> dict[str, Any]:
        chats = self.ask.endpoint == CHAT.strip("/")
        said = {"message": {"role": "assistant", "content": text, **more}} if chats else {"response": text, **more}
        return {"model": self.ask.model, "created_at": moment(time.time()), **said, **rest}

    def _sums(self, answer: ServedAnswer) -> dict[str, Any]:
        """Why it ended; whole nanoseconds. Waiting and loading are what reading and writing leave of the time."""
        total, read = time.monotonic() - self.began, answer.prefill.seconds if answer.prefill else 0.0
        written = answer.stats.get("decode_seconds") or 0.0
        seconds = {"total": total, "load": max(total - read - written, 0.0), "prompt_eval": read, "eval": written}
        reason = "length" if answer.cut else "stop"
        if self.ask.extra.get("loads"):
            reason = "unload" if self.ask.unloads else "load"
        durations = {f"{name}_duration": int(1e9 * value) for name, value in seconds.items()}
        counts = {"prompt_eval_count": len(answer.prompt), "eval_count": answer.emitted}
        return {"done": True, "done_reason": reason, **durations, **counts}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "function": {"name": call.name, "arguments": json.loads(call.arguments)}}


def tags(model: Model, switch: Switch | None = None) -> dict[str, Any]:
    """The models: the server's own, then those that can take its place, of which little is known before."""
    pairs = [spec.pair for spec in (switch.here().values() if switch else ())]
    others = [replace(model, name=pair.name, target=public_name(pair.target), sides=()) for pair in pairs]
    return {"models": [*map(_entry, (model, *others))]}


def loaded(find: Callable[[str], Model], state: SchedulerStatus) -> dict[str, Any]:
    """The model that is in memory, if one is."""
    model = find(state.pair)
    entry = _entry(model)
    left = FOREVER_SECONDS if state.idle_seconds is None else state.idle_seconds
    here = {**entry, "size_vram": entry["size"], "context_length": model.context_limit}
    here["expires_at"] = moment(time.time() + left)
    return {"models": [here] if state.loaded else []}


def _entry(model: Model) -> dict[str, Any]:
    names = {"name": model.name, "model": model.name, "digest": sha256(model.target.encode()).hexdigest()}
    size = sum(side.weight_bytes for side in model.sides)
    return {**names, "modified_at": moment(model.since), "size": size, "details": _details(model)}


def _details(model: Model) -> dict[str, Any]:
    """Of the target; what is not known is empty, as clients leave out a model that lacks a field."""
    found: dict[str, Any] = {"parent_model": model.target, "format": "safetensors", "family": "unknown"}
    found |= {"parameter_size": "", "quantization_level": ""}
    for side in model.sides[:1]:
        found["family"], found["quantization_level"] = side.config.get("model_type"), f"{side.bits}-bit"
        found["parameter_size"] = parameters(side.billions).replace(" ", "")
    return {**found, "families": [found["family"]]}


def show(values: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """What clients look up of a model before they ask it."""
    details, tokenizer = _details(model), model.tokenizer
    able = {
        "completion": True,
        "tools": tokenizer.call_form is not None,
        "insert": Fill.of(tokenizer) is not None,
        "thinking": not tokenizer.template_names.isdisjoint((EFFORT, *SWITCHES)),
    }
    family, sizes = details["family"], text_config(model.sides[0].config) if model.sides else {}
    info = {"general.architecture": family, f"{family}.context_length": model.context_limit}
    info[f"{family}.embedding_length"] = sizes.get("hidden_size", 0)
    head = {"modelfile": "", "parameters": "", "template": tokenizer.template, "modified_at": moment(model.since)}
    return {**head, "details": details, "model_info": info, "capabilities": [name for name, can in able.items() if can]}
