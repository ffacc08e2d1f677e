"""Anthropic's /v1/messages and count_tokens (pure): a body read, an answer said in blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.events import RoundDone
from specdec_cli.jsonfile import shown
from specdec_cli.serve.http import messages, voice
from specdec_cli.serve.http.answer import Answer, Piece, Said, Thought
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.errors import ANTHROPIC, HttpError, bad_field, shaped
from specdec_cli.serve.http.fields import Fields
from specdec_cli.serve.http.functions import anthropic_offer
from specdec_cli.serve.http.sampling import constraint_of, request_of
from specdec_cli.serve.model import Model

# Claude Code's first block of instructions; its checksum is another one in every request, so nothing could be reused.
CHANGING = "x-anthropic-billing-header:"
THINKING = ("enabled", "disabled", "adaptive")


def read(body: Fields, model: Model, count_only: bool = False) -> Ask:
    """What the body asks for. Raises: HttpError."""
    body.refuse(mcp_servers="no other server is called from here", container="nothing is run here")
    if not count_only and body.whole("max_tokens", 0) is None:
        raise bad_field("max_tokens", "it is missing, and a whole number is expected")
    offer, one_call = anthropic_offer(body)
    thinking = body.inner("thinking")
    shape = body.inner("output_format") or (body.inner("output_config") or Fields({})).inner("format")
    return Ask(
        request=replace(request_of(body, model.base, model.vocab_size), constraint=constraint_of(shape)),
        messages=tuple(conversation(body)),
        tools=offer.functions,
        must_call=offer.must,
        one_call=one_call,
        thinks=thinking is not None and thinking.choice("type", THINKING) in ("enabled", "adaptive"),
        stream=body.flag("stream"),
        rounds=body.flag("specdec"),
        key=body.text("prompt_cache_key"),
        noun="messages",
    )


def conversation(body: Fields) -> list[dict[str, Any]]:
    """System and messages, as templates take them."""
    found = []
    if system := _system(body):
        found.append({"role": "system", "content": system})
    for message in body.each("messages"):
        role = message.choice("role", ("user", "assistant", "system"))
        if role is None:
            raise bad_field(message.named("role"), "it is missing; one of user, assistant")
        if isinstance(message.raw("content"), list):
            found += _blocks(message, role)
        else:
            found.append({"role": role, "content": message.needed("content")})
    if not any(message["role"] != "system" for message in found):
        raise bad_field("messages", "it is empty, and at least one message is expected")
    return messages.settled(found)


def _system(body: Fields) -> str:
    value = body.raw("system")
    if value is None or isinstance(value, str):
        return value or ""
    blocks = [block.needed("text") for block in body.each("system")]
    return "\n".join(block for place, block in enumerate(blocks) if place or not block.startswith(CHANGING))


def _blocks(message: Fields, role: str) -> list[dict[str, Any]]:
    """A message of blocks: results first, each as a message of its own, then what is said."""
    results, texts, thoughts, calls = [], [], [], []
    for block in message.each("content"):
        match block.text("type"):
            case "text":
                texts.append(block.needed("text"))
            case "document" | "search_result":
                texts.append(messages.part_text(block))
            case "thinking":
                thoughts.append(block.text("thinking") or "")
            case "redacted_thinking":
                pass
            case "tool_use":
                given = block.inner("input")
                calls.append(messages.call(block.needed("id"), block.needed("name"), given.values if given else {}))
            case "tool_result":
                results.append(messages.result(block.needed("tool_use_id"), messages.text_of(block, notes=True)))
            case kind:
                raise bad_field(block.named("type"), f"{shown(kind)} cannot be read: the model reads text only")
    said = "\n".join(filter(None, texts))
    if role == "assistant":
        return [*results, messages.assistant(said, "\n".join(thoughts), calls)]
    return [*results, {"role": role, "content": said}] if said or not results else results


def reason(answer: Answer) -> tuple[str, str | None]:
    """(Anthropic's word for how it ended, the stop string that ended it)."""
    if answer.calls:
        return "tool_use", None
    if answer.cut:
        return "max_tokens", None
    stop = answer.stop_string
    return ("stop_sequence", stop) if stop else ("end_turn", None)


def usage(answer: Answer) -> dict[str, int]:
    """What was read anew, what was not, and what was written."""
    return {
        "input_tokens": len(answer.prompt) - answer.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached,
        "output_tokens": answer.emitted,
    }


@dataclass(slots=True)
class BlockVoice:
    """An answer as a `message`, or as its events."""

    ask: Ask
    model: str
    id: str = field(default_factory=lambda: voice.new_id("msg_"))
    silence: bytes = b'event: ping\ndata: {"type":"ping"}\n\n'
    _place: int = -1
    _open: str = ""

    def begin(self) -> bytes:
        return b""

    def read(self, answer: Answer) -> bytes:
        return _event({"type": "message_start", "message": self._message(answer, [], (None, None))}) + self.silence

    def say(self, choice: int, piece: Piece, answer: Answer) -> bytes:
        match piece:
            case Thought(text):
                delta = {"type": "thinking_delta", "thinking": text}
                return self._opened("thinking", {"type": "thinking", "thinking": "", "signature": ""}, delta)
            case Said(text):
                return self._opened("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
        start: dict[str, Any] = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in piece.pieces]
        return self._closed() + self._opened("tool_use", start, *deltas)

    def show(self, choice: int, round: RoundDone) -> bytes:
        return _event({"type": "specdec", "specdec": voice.round_values(round)})

    def close(self, choice: int, answer: Answer) -> bytes:
        return b""

    def end(self, answers: Sequence[Answer]) -> bytes:
        (answer,) = answers
        stop_reason, stop_sequence = reason(answer)
        delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        last = {"type": "message_delta", "delta": delta, "usage": usage(answer), "timings": voice.timings(answers)}
        nothing = self._opened("text", {"type": "text", "text": ""}) if self._place < 0 else b""
        return nothing + self._closed() + _event(last) + _event({"type": "message_stop"})

    def failed(self, error: HttpError) -> bytes:
        return _event(shaped(ANTHROPIC, error))

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
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
        return {**message, "timings": voice.timings(answers), **voice.rounds_of(answers)}

    def _message(
        self, answer: Answer, blocks: list[dict[str, Any]], ended: tuple[str | None, str | None]
    ) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": blocks}
        return {**head, "stop_reason": ended[0], "stop_sequence": ended[1], "usage": usage(answer)}

    def _opened(self, kind: str, block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
        """The start of a block of this kind, unless one is open, and what it grows by."""
        before = b""
        if self._open != kind:
            before = self._closed()
            self._place, self._open = self._place + 1, kind
            before += _event({"type": "content_block_start", "index": self._place, "content_block": block})
        place = {"type": "content_block_delta", "index": self._place}
        return before + voice.joined(_event({**place, "delta": delta}) for delta in deltas)

    def _closed(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        return _event({"type": "content_block_stop", "index": self._place})


def _event(values: dict[str, Any]) -> bytes:
    return voice.event(values, values["type"])
