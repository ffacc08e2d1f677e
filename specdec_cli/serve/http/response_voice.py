"""How /v1/responses says an answer (pure): items that open, grow and close, each event numbered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec_cli.events import RoundDone
from specdec_cli.serve.http import voice
from specdec_cli.serve.http.answer import Answer, Piece, Said, Thought
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.errors import HttpError
from specdec_cli.serve.http.functions import qualified
from specdec_cli.serve.http.tools import Call


def _new(prefix: str) -> str:
    return voice.new_id(f"{prefix}_")


def _message(identity: str, text: str, status: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [part] if status != "in_progress" else []
    return {"id": identity, "type": "message", "role": "assistant", "status": status, "content": content}


def _reasoning(identity: str, text: str, status: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}] if status != "in_progress" else []
    return {"id": identity, "type": "reasoning", "summary": [], "content": content, "status": status}


# By kind of text: the item, its part, and the names of its events.
KINDS = {
    "msg": (_message, "output_text"),
    "rs": (_reasoning, "reasoning_text"),
}


@dataclass(slots=True)
class ResponseVoice:
    """An answer as a `response`, or as its events."""

    ask: Ask
    model: str
    id: str = field(default_factory=lambda: _new("resp"))
    created: int = field(default_factory=lambda: int(time.time()))
    silence: bytes = voice.COMMENT
    _sequence: int = 0
    _open: tuple[str, str] | None = None
    _text: str = ""
    _items: list[dict[str, Any]] = field(default_factory=list)

    def begin(self) -> bytes:
        empty = self._response([], "in_progress")
        kinds = ("response.created", "response.in_progress")
        return voice.joined(self._event(kind, response=empty) for kind in kinds)

    def read(self, answer: Answer) -> bytes:
        return b""

    def say(self, choice: int, piece: Piece, answer: Answer) -> bytes:
        if isinstance(piece, Call):
            return self._closed() + self._called(piece)
        kind = "rs" if isinstance(piece, Thought) else "msg"
        before = b"" if self._open and self._open[0] == kind else self._closed() + self._opened(kind)
        self._text += piece.text
        more: dict[str, Any] = {"logprobs": []} if isinstance(piece, Said) else {}
        return before + self._event(f"response.{KINDS[kind][1]}.delta", delta=piece.text, **self._part(), **more)

    def show(self, choice: int, round: RoundDone) -> bytes:
        return self._event("specdec.round", specdec=voice.round_values(round))

    def close(self, choice: int, answer: Answer) -> bytes:
        nothing = self._opened("msg") if not self._items and self._open is None else b""
        return nothing + self._closed(_ended(answer))

    def end(self, answers: Sequence[Answer]) -> bytes:
        kind = "response.incomplete" if answers[0].cut else "response.completed"
        return self._event(kind, response=self._ended(answers[0], self._items))

    def failed(self, error: HttpError) -> bytes:
        said = {"code": "server_error", "message": error.message}
        return self._event("response.failed", response={**self._response([], "failed"), "error": said})

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        (answer,) = answers
        last = "completed" if answer.calls else _ended(answer)
        thought = "completed" if answer.text else last
        items = [_reasoning(_new("rs"), answer.thinking, thought)] if answer.thinking else []
        if answer.text or not answer.calls:
            items.append(_message(_new("msg"), answer.text, last))
        items += [self._function(_new("fc"), call, "completed") for call in answer.calls]
        return {**self._ended(answer, items), **voice.rounds_of(answers)}

    def _opened(self, kind: str) -> bytes:
        identity = _new(kind)
        self._open, self._text = (kind, identity), ""
        item = KINDS[kind][0](identity, "", "in_progress")
        added = self._event("response.output_item.added", output_index=len(self._items), item=item)
        part = KINDS[kind][0](identity, "", "completed")["content"][0]
        return added + self._event("response.content_part.added", **self._part(), part=part)

    def _closed(self, status: str = "completed") -> bytes:
        if self._open is None:
            return b""
        kind, identity = self._open
        item = KINDS[kind][0](identity, self._text, status)
        more: dict[str, Any] = {"logprobs": []} if kind == "msg" else {}
        done = self._event(f"response.{KINDS[kind][1]}.done", **self._part(), text=self._text, **more)
        done += self._event("response.content_part.done", **self._part(), part=item["content"][0])
        self._open = None
        return done + self._finished(item)

    def _function(self, identity: str, call: Call, status: str) -> dict[str, Any]:
        """A call; a function of a namespace is told by both names."""
        offered = [tool for tool in self.ask.extra.get("tools") or () if tool.get("type") == "namespace"]
        spaces = [tool["name"] for tool in offered if call.name.startswith(qualified(tool["name"], ""))]
        said = {"call_id": call.id, "name": call.name, "arguments": call.arguments if status != "in_progress" else ""}
        if spaces:
            said |= {"namespace": spaces[0], "name": call.name.removeprefix(qualified(spaces[0], ""))}
        return {"id": identity, "type": "function_call", **said, "status": status}

    def _called(self, call: Call) -> bytes:
        identity = _new("fc")
        place = {"item_id": identity, "output_index": len(self._items)}
        item = self._function(identity, call, "in_progress")
        found = self._event("response.output_item.added", output_index=len(self._items), item=item)
        for piece in call.pieces:
            found += self._event("response.function_call_arguments.delta", **place, delta=piece)
        item = self._function(identity, call, "completed")
        said = {"name": item["name"], "arguments": call.arguments}
        found += self._event("response.function_call_arguments.done", **place, **said)
        return found + self._finished(item)

    def _finished(self, item: dict[str, Any]) -> bytes:
        self._items.append(item)
        return self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _part(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open[1], "output_index": len(self._items), "content_index": 0}

    def _event(self, kind: str, **values: Any) -> bytes:
        self._sequence += 1
        return voice.event({"type": kind, "sequence_number": self._sequence - 1, **values}, kind)

    def _ended(self, answer: Answer, items: list[dict[str, Any]]) -> dict[str, Any]:
        found = self._response(items, _ended(answer))
        if answer.cut:
            found["incomplete_details"] = {"reason": "max_output_tokens"}
        return {**found, "usage": _usage(answer), "timings": voice.timings([answer])}

    def _response(self, items: list[dict[str, Any]], status: str) -> dict[str, Any]:
        said = {name: value for name, value in self.ask.extra.items() if value is not None}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
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


def _ended(answer: Answer) -> str:
    """The status of the answer, and of its last words."""
    return "incomplete" if answer.cut else "completed"


def _usage(answer: Answer) -> dict[str, Any]:
    found = voice.usage([answer])
    more = {"output_tokens_details": {"reasoning_tokens": 0, **found.get("completion_tokens_details", {})}}
    return {
        "input_tokens": found["prompt_tokens"],
        "input_tokens_details": {"cache_write_tokens": 0, **found["prompt_tokens_details"]},
        "output_tokens": found["completion_tokens"],
        **more,
        "total_tokens": found["total_tokens"],
    }
