"""OpenAI's /v1/responses (pure), without memory: a body read; an answer in items that open, grow and close."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Discriminator, FailFast, Field, Tag, field_validator

from specdec_cli.apps.serve.http import dialect, reading
from specdec_cli.apps.serve.http.answer import Call, ChatRequest, Delta, ReasoningDelta, ServedAnswer, TextDelta
from specdec_cli.apps.serve.http.contents import Content, require_readable, text_of
from specdec_cli.apps.serve.http.errors import HttpError, bad_field
from specdec_cli.apps.serve.http.schema import FEW, Arguments, Asked, Body, Format, Reasoning, Texts, parse, wrapped
from specdec_cli.apps.serve.http.tools import openai_offer, qualified
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.jsonfile import shown
from specdec_cli.core.template import TemplateValues
from specdec_cli.models.turns import Message

LOGPROBS = "message.output_text.logprobs"
STORED = "item_reference"
# What a request said that its response says again.
ECHOED = ("instructions", "metadata", "temperature", "top_p", "tools", "tool_choice", "text", "reasoning", "user")


class MessageItem(Body):
    role: Literal["user", "assistant", "system", "developer"]
    content: Content = []


class CallItem(Body):
    name: str
    call_id: str
    namespace: str | None = None
    arguments: Arguments = ""


class CustomItem(Body):
    """A tool of free text that the model called, or a shell."""

    name: str = "local_shell"
    call_id: str
    input: str | None = None
    action: Any = None


class ResultItem(Body):
    call_id: str = Field(validation_alias=AliasChoices("call_id", "id"))
    output: Content = []


class ReasoningItem(Body):
    content: Content = []
    summary: Content = []


class OtherItem(Body):
    """Of a kind whose words no template takes, or that would have to be kept here: refused by its name.

    Left out, its functions and results would be gone unsaid.
    """

    type: Any = Field(default=STORED, validate_default=True)

    @field_validator("type")
    @classmethod
    def _refuse_kind(cls, kind: Any) -> Any:
        if kind == STORED or "compaction" in str(kind):
            raise ValueError(f"{shown(kind)} refers to stored data, which this server does not keep")
        raise ValueError(f"{shown(kind)} is not read; items are {', '.join(ITEMS)}")


def kind_of_item(value: Any) -> str:
    """The tag of the model that an item is read by."""
    if not isinstance(value, dict):
        return "<message>"
    kind = value.get("type") or (STORED if value.get("id") and value.get("role") is None else "message")
    return ITEMS.get(kind, "<other>") if isinstance(kind, str) else "<other>"


ITEMS = {
    "message": "<message>",
    "function_call": "<call>",
    **dict.fromkeys(("custom_tool_call", "local_shell_call"), "<custom>"),
    **dict.fromkeys(("function_call_output", "custom_tool_call_output", "local_shell_call_output"), "<result>"),
    "reasoning": "<reasoning>",
}
Item = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[CallItem, Tag("<call>")]
    | Annotated[CustomItem, Tag("<custom>")]
    | Annotated[ResultItem, Tag("<result>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")]
    | Annotated[OtherItem, Tag("<other>")],
    Discriminator(kind_of_item),
]


class TextOptions(Body):
    format: Format | None = None


class ResponseBody(Asked):
    REFUSED = {
        **Asked.REFUSED,
        "prompt": "there are no stored prompts; send instructions and input",
        "top_logprobs": "/v1/chat/completions gives them",
    }
    include: Texts = []
    instructions: str = ""
    input: Annotated[list[Item], FailFast(), FEW, wrapped("content", role="user")] = []
    text: TextOptions = TextOptions()
    reasoning: Reasoning = Reasoning()
    reasoning_effort: str | None = None
    response_format: Format | None = None


def read(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(ResponseBody, values)
    shape = "response_format" if body.text.format is None and body.response_format else "text.format"
    constraint = reading.constraint_of(body.text.format or body.response_format, shape)
    if LOGPROBS in body.include:
        raise bad_field("include", f"{LOGPROBS} is not supported; /v1/chat/completions returns logprobs")
    return reading.chat_request(
        body,
        model,
        "responses",
        {"constraint": constraint},
        openai_offer(body, nested=False),
        messages=_conversation(body),
        source="input",
        shape=shape,
        template=TemplateValues.of_effort(body.reasoning.effort or body.reasoning_effort, body.chat_template_kwargs),
        extra={name: values.get(name) for name in ECHOED},
    )


def _conversation(body: ResponseBody) -> tuple[Message, ...]:
    """Instructions and input items, as templates take them; what a model said and called in one turn is one message."""
    found: list[dict[str, Any]] = [{"role": "system", "content": body.instructions}] if body.instructions else []
    told = [place for place, item in enumerate(body.input) if isinstance(item, MessageItem) and item.role == "user"]
    for place, item in enumerate(body.input):
        match item:
            case MessageItem() if place in told[-1:]:
                require_readable(item.content, f"input[{place}].content")
                found.append({"role": "user", "content": text_of(item.content)})
            case MessageItem(role="assistant"):
                _join(found, reading.assistant(text_of(item.content)))
            case MessageItem():
                role = "system" if item.role == "developer" else item.role
                found.append({"role": role, "content": text_of(item.content)})
            case CallItem():
                call = reading.call(item.call_id, qualified(item.namespace, item.name), item.arguments)
                _join(found, reading.assistant("", calls=[call]))
            case CustomItem():
                given = item.action if item.input is None else {"input": item.input}
                _join(found, reading.assistant("", calls=[reading.call(item.call_id, item.name, given or {})]))
            case ResultItem():
                found.append(reading.result(item.call_id, text_of(item.output)))
            case ReasoningItem() if thought := text_of(item.content or item.summary):  # none where it is encrypted
                _join(found, reading.assistant("", thought))
    if not any(message["role"] != "system" for message in found):
        raise bad_field("input", "it is empty, but a text or a list of items is expected")
    return reading.conversation(found)


def _join(found: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Join a message of the model's to its turn, unless that has already said what this says."""
    last = found[-1] if found else None
    if last is None or last["role"] != "assistant" or (message["content"] and last["content"]):
        found.append(message)
        return
    last["content"] = last["content"] or message["content"]
    if "tool_calls" in message:
        last.setdefault("tool_calls", []).extend(message["tool_calls"])
    for name in ("reasoning_content", "thinking"):
        if name in message:
            last[name] = last.get(name, "") + message[name]


def _new(prefix: str) -> str:
    return dialect.new_id(f"{prefix}_")


def _message(identity: str, text: str, status: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [part] if status != "in_progress" else []
    return {"id": identity, "type": "message", "role": "assistant", "status": status, "content": content}


def _reasoning(identity: str, text: str, status: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}] if status != "in_progress" else []
    return {"id": identity, "type": "reasoning", "summary": [], "content": content, "status": status}


# By kind of text: the item, its part, and the names of its events.
KINDS = {"msg": (_message, "output_text"), "rs": (_reasoning, "reasoning_text")}


@dataclass(slots=True)
class ResponseDialect(dialect.Dialect):
    """An answer as a `response`, or as its events."""

    id: str = field(default_factory=lambda: _new("resp"))
    created: int = field(default_factory=lambda: int(time.time()))
    _sequence: int = 0
    _open: tuple[str, str] | None = None
    _text: str = ""
    _items: list[dict[str, Any]] = field(default_factory=list)

    def begin(self) -> bytes:
        empty = self._response([], "in_progress")
        kinds = ("response.created", "response.in_progress")
        return b"".join(self._event(kind, response=empty) for kind in kinds)

    def say(self, choice: int, delta: Delta, answer: ServedAnswer) -> bytes:
        if isinstance(delta, Call):
            return self._end_item() + self._write_call(delta)
        kind = "rs" if isinstance(delta, ReasoningDelta) else "msg"
        before = b"" if self._open and self._open[0] == kind else self._end_item() + self._begin_item(kind)
        self._text += delta.text
        more: dict[str, Any] = {"logprobs": []} if isinstance(delta, TextDelta) else {}
        return before + self._event(f"response.{KINDS[kind][1]}.delta", delta=delta.text, **self._part(), **more)

    def close(self, choice: int, answer: ServedAnswer) -> bytes:
        nothing = self._begin_item("msg") if not self._items and self._open is None else b""
        return nothing + self._end_item(_status(answer))

    def end(self, answers: Sequence[ServedAnswer]) -> bytes:
        kind = "response.incomplete" if answers[0].cut else "response.completed"
        return self._event(kind, response=self._whole(answers[0], self._items))

    def failed(self, error: HttpError) -> bytes:
        said = {"code": "server_error", "message": error.message}
        return self._event("response.failed", response={**self._response([], "failed"), "error": said})

    def whole(self, answers: Sequence[ServedAnswer]) -> dict[str, Any]:
        (answer,) = answers
        last = "completed" if answer.calls else _status(answer)
        thought = "completed" if answer.text else last
        items = [_reasoning(_new("rs"), answer.thinking, thought)] if answer.thinking else []
        if answer.text or not answer.calls:
            items.append(_message(_new("msg"), answer.text, last))
        items += [self._function(_new("fc"), call, "completed") for call in answer.calls]
        return self._whole(answer, items)

    def _begin_item(self, kind: str) -> bytes:
        identity = _new(kind)
        self._open, self._text = (kind, identity), ""
        item = KINDS[kind][0](identity, "", "in_progress")
        added = self._event("response.output_item.added", output_index=len(self._items), item=item)
        part = KINDS[kind][0](identity, "", "completed")["content"][0]
        return added + self._event("response.content_part.added", **self._part(), part=part)

    def _end_item(self, status: str = "completed") -> bytes:
        if self._open is None:
            return b""
        kind, identity = self._open
        item = KINDS[kind][0](identity, self._text, status)
        more: dict[str, Any] = {"logprobs": []} if kind == "msg" else {}
        done = self._event(f"response.{KINDS[kind][1]}.done", **self._part(), text=self._text, **more)
        done += self._event("response.content_part.done", **self._part(), part=item["content"][0])
        self._open = None
        return done + self._keep(item)

    def _function(self, identity: str, call: Call, status: str) -> dict[str, Any]:
        """A call; a function of a namespace is told by both names."""
        offered = [tool for tool in self.ask.extra.get("tools") or () if tool.get("type") == "namespace"]
        spaces = [tool["name"] for tool in offered if call.name.startswith(qualified(tool["name"], ""))]
        said = {"call_id": call.id, "name": call.name, "arguments": call.arguments if status != "in_progress" else ""}
        if spaces:
            said |= {"namespace": spaces[0], "name": call.name.removeprefix(qualified(spaces[0], ""))}
        return {"id": identity, "type": "function_call", **said, "status": status}

    def _write_call(self, call: Call) -> bytes:
        identity = _new("fc")
        place = {"item_id": identity, "output_index": len(self._items)}
        item = self._function(identity, call, "in_progress")
        found = self._event("response.output_item.added", output_index=len(self._items), item=item)
        for piece in call.pieces:
            found += self._event("response.function_call_arguments.delta", **place, delta=piece)
        item = self._function(identity, call, "completed")
        said = {"name": item["name"], "arguments": call.arguments}
        found += self._event("response.function_call_arguments.done", **place, **said)
        return found + self._keep(item)

    def _keep(self, item: dict[str, Any]) -> bytes:
        self._items.append(item)
        return self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _part(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open[1], "output_index": len(self._items), "content_index": 0}

    def _event(self, kind: str, **values: Any) -> bytes:
        self._sequence += 1
        return dialect.event({"type": kind, "sequence_number": self._sequence - 1, **values}, kind)

    def _whole(self, answer: ServedAnswer, items: list[dict[str, Any]]) -> dict[str, Any]:
        found = self._response(items, _status(answer))
        if answer.cut:
            found["incomplete_details"] = {"reason": "max_output_tokens"}
        return {**found, "usage": _usage(answer), "timings": dialect.timings([answer])}

    def _response(self, items: list[dict[str, Any]], status: str) -> dict[str, Any]:
        said = {name: value for name, value in self.ask.extra.items() if value is not None}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.ask.model,
            "output": list(items),
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": not self.ask.one_call,
            "temperature": None,
            "top_p": None,
            "tools": [],
            "tool_choice": "auto",
            "store": False,
            "previous_response_id": None,
            "usage": None,
            **said,
        }


def _status(answer: ServedAnswer) -> str:
    """The status of the answer, and of its last words."""
    return "incomplete" if answer.cut else "completed"


def _usage(answer: ServedAnswer) -> dict[str, Any]:
    found = dialect.usage([answer])
    more = {"output_tokens_details": {"reasoning_tokens": 0, **found.get("completion_tokens_details", {})}}
    return {
        "input_tokens": found["prompt_tokens"],
        "input_tokens_details": {"cache_write_tokens": 0, **found["prompt_tokens_details"]},
        "output_tokens": found["completion_tokens"],
        **more,
        "total_tokens": found["total_tokens"],
    }
