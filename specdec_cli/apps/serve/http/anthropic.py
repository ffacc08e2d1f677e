"""Anthropic's /v1/messages and count_tokens (pure): a body read, an answer written in blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import FailFast, Tag

from specdec_cli.apps.serve.http import dialect, reading
from specdec_cli.apps.serve.http.answer import ChatRequest, Delta, ReasoningDelta, ServedAnswer, TextDelta
from specdec_cli.apps.serve.http.contents import Content, Part, Thought, joined_text, require_readable, text_of
from specdec_cli.apps.serve.http.errors import ANTHROPIC, HttpError, bad_field, error_body
from specdec_cli.apps.serve.http.schema import FEW, Arguments, Asked, Body, Format, TextBlock, by, parse, wrapped
from specdec_cli.apps.serve.http.tools import anthropic_offer
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.template import TemplateValues
from specdec_cli.models.turns import Message, joined

# Claude Code's first block of instructions; its checksum is another one in every request, so nothing could be reused.
CHANGING = "x-anthropic-billing-header:"
# Templates know no failure.
FAILED_CALL = "[The call failed]"


class UseBlock(Body):
    id: str
    name: str
    input: Arguments = ""


class ResultBlock(Body):
    tool_use_id: str
    content: Content = []
    is_error: bool = False


Block = Annotated[
    Annotated[UseBlock, Tag("<use>")] | Annotated[ResultBlock, Tag("<result>")] | Annotated[Part, Tag("<part>")],
    by("type", {"tool_use": "<use>", "tool_result": "<result>"}, "<part>"),
]


class BlockMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[list[Block], FailFast(), FEW, wrapped("text", type="text")] = []


class ThinkingOptions(Body):
    type: Literal["enabled", "disabled", "adaptive"] | None = None


class OutputConfig(Body):
    """How hard to think, and the answer's shape."""

    effort: str | None = None
    format: Format | None = None


class MessageBody(Asked):
    """Of /v1/messages and its count_tokens."""

    system: Annotated[list[TextBlock], FailFast(), FEW, wrapped("text")] = []
    messages: Annotated[list[BlockMessage], FailFast(), FEW] = []
    thinking: ThinkingOptions = ThinkingOptions()
    output_format: Format | None = None
    output_config: OutputConfig = OutputConfig()


def models(listed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """OpenAI's entries as Anthropic's list, which is one page."""
    found = [*map(model_info, listed)]
    return {"data": found, "has_more": False, "first_id": found[0]["id"], "last_id": found[-1]["id"]}


def model_info(entry: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's entry of a model as Anthropic's; the time in RFC 3339."""
    names = {"type": "model", "id": entry["id"], "display_name": entry["id"]}
    names["created_at"] = dialect.moment(entry["created"])
    return {**names, "lifecycle": "active", "max_input_tokens": entry.get("meta", {}).get("n_ctx_train")}


def read(values: Mapping[str, Any], model: Model, count_only: bool = False) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(MessageBody, values)
    if not count_only and body.max_tokens is None:
        raise bad_field("max_tokens", "it is missing, but a whole number is expected")
    field = "output_format" if body.output_format else "output_config.format"
    constraint = reading.constraint_of(body.output_format or body.output_config.format, field)
    return reading.chat_request(
        body,
        model,
        "messages",
        {"constraint": constraint},
        anthropic_offer(body),
        messages=_conversation(body),
        shape=field,
        template=TemplateValues(
            body.thinking.type in ("enabled", "adaptive"), body.output_config.effort, body.chat_template_kwargs
        ),
    )


def _conversation(body: MessageBody) -> tuple[Message, ...]:
    """System and messages, as templates take them."""
    found: list[Message] = []
    blocks = [block.text for block in body.system]
    system = "\n".join(block for place, block in enumerate(blocks) if place or not block.startswith(CHANGING))
    if system:
        found.append({"role": "system", "content": system})
    told = [place for place, message in enumerate(body.messages) if message.role == "user"]
    for place, message in enumerate(body.messages):
        if place in told[-1:]:
            require_readable(message.content, f"messages[{place}].content")
        found += _read(message)
    if not any(message["role"] != "system" for message in found):
        raise bad_field("messages", "it is empty, but at least one message is expected")
    return reading.conversation(joined(found))


def _read(message: BlockMessage) -> list[dict[str, Any]]:
    """A message of blocks: results first, each as a message of its own, then what is said."""
    results, texts, thoughts, calls = [], [], [], []
    for block in message.content:
        match block:
            case UseBlock():
                calls.append(reading.call(block.id, block.name, block.input))
            case ResultBlock():
                text = joined_text(FAILED_CALL if block.is_error else "", text_of(block.content))
                results.append(reading.result(block.tool_use_id, text))
            case Thought():
                thoughts.append(block.thought)
            case _:
                texts.append(block.words)
    said = joined_text(*texts)
    if message.role == "assistant":
        return [*results, reading.assistant(said, "\n".join(thoughts), calls)]
    return [*results, {"role": message.role, "content": said}] if said or not results else results


def reason(answer: ServedAnswer) -> tuple[str, str | None]:
    """(Anthropic's word for how it ended, the stop string that ended it)."""
    if answer.calls:
        return "tool_use", None
    if answer.cut:
        return "max_tokens", None
    stop = answer.stop_string
    return ("stop_sequence", stop) if stop else ("end_turn", None)


def usage(answer: ServedAnswer) -> dict[str, int]:
    """What was read anew, what was not, and what was written."""
    return {
        "input_tokens": len(answer.prompt) - answer.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached,
        "output_tokens": answer.emitted,
    }


@dataclass(slots=True)
class BlockDialect(dialect.Dialect):
    """An answer as a `message`, or as its events."""

    silence = b'event: ping\ndata: {"type":"ping"}\n\n'
    id: str = field(default_factory=lambda: dialect.new_id("msg_"))
    _place: int = -1
    _open: str = ""

    def read(self, answer: ServedAnswer) -> bytes:
        return _event({"type": "message_start", "message": self._message(answer, [], (None, None))}) + self.silence

    def say(self, choice: int, delta: Delta, answer: ServedAnswer) -> bytes:
        match delta:
            case ReasoningDelta(text):
                grown = {"type": "thinking_delta", "thinking": text}
                return self._grow("thinking", {"type": "thinking", "thinking": "", "signature": ""}, grown)
            case TextDelta(text):
                return self._grow("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
        start: dict[str, Any] = {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in delta.pieces]
        return self._close() + self._grow("tool_use", start, *deltas)

    def end(self, answers: Sequence[ServedAnswer]) -> bytes:
        (answer,) = answers
        stop_reason, stop_sequence = reason(answer)
        delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        last = {"type": "message_delta", "delta": delta, "usage": usage(answer), "timings": dialect.timings(answers)}
        nothing = self._grow("text", {"type": "text", "text": ""}) if self._place < 0 else b""
        return nothing + self._close() + _event(last) + _event({"type": "message_stop"})

    def failed(self, error: HttpError) -> bytes:
        return _event(error_body(ANTHROPIC, error))

    def whole(self, answers: Sequence[ServedAnswer]) -> dict[str, Any]:
        (answer,) = answers
        blocks: list[dict[str, Any]] = []
        if answer.thinking:
            blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": ""})
        if answer.text or not answer.calls:
            blocks.append({"type": "text", "text": answer.text})
        for call in answer.calls:
            given = json.loads(call.arguments)
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
        message = self._message(answer, blocks, reason(answer))
        return {**message, "timings": dialect.timings(answers)}

    def _message(
        self, answer: ServedAnswer, blocks: list[dict[str, Any]], ended: tuple[str | None, str | None]
    ) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self.ask.model, "content": blocks}
        return {**head, "stop_reason": ended[0], "stop_sequence": ended[1], "usage": usage(answer)}

    def _grow(self, kind: str, block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
        """The start of a block of this kind, unless one is open, and what it grows by."""
        before = b""
        if self._open != kind:
            before = self._close()
            self._place, self._open = self._place + 1, kind
            before += _event({"type": "content_block_start", "index": self._place, "content_block": block})
        place = {"type": "content_block_delta", "index": self._place}
        return before + b"".join(_event({**place, "delta": delta}) for delta in deltas)

    def _close(self) -> bytes:
        if not self._open:
            return b""
        signed = {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": ""}}
        last = _event({**signed, "index": self._place}) if self._open == "thinking" else b""
        self._open = ""
        return last + _event({"type": "content_block_stop", "index": self._place})


def _event(values: dict[str, Any]) -> bytes:
    return dialect.event(values, values["type"])
