"""Messages of requests -> those of chat templates (pure): every word reaches the template, or is refused.

Templates take texts as `content`, the arguments of calls as objects, and leading instructions as one system message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec_cli.jsonfile import NotJson, parse_object, shown
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.schema import Part

Message = dict[str, Any]
TEXTS = ("", "text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text")
UNREADABLE = {
    **dict.fromkeys(("image_url", "input_image", "image"), "an image"),
    **dict.fromkeys(("input_audio", "audio"), "a sound"),
    **dict.fromkeys(("file", "input_file", "document"), "a file"),
    "video_url": "a video",
}


def text_of(parts: Sequence[Part], path: str, notes: bool = False) -> str:
    """The text of a content at `path`. With `notes` what no text model can read becomes a note of it.

    A function's result is worth notes: refused, it would be refused with every later turn of its conversation too.
    Raises: HttpError for what cannot be read.
    """
    texts = (part_text(part, f"{path}[{place}]", notes) for place, part in enumerate(parts))
    return "\n".join(filter(None, texts))


def part_text(part: Part, path: str, notes: bool = False) -> str:
    """The text of one part, as in `text_of`: of a document and of what a search found, with its title."""
    source = part.source
    if part.type == "search_result":
        return _joined(part.title, part.link, text_of(part.content, f"{path}.content", notes))
    if part.type == "document" and source is not None and source.type in ("text", "content"):
        said = source.data or text_of(source.content, f"{path}.source.content", notes)
        return _joined(part.title, part.context, said)
    if part.type in TEXTS:
        return part.text or part.refusal
    if part.type not in UNREADABLE:
        raise bad_field(f"{path}.type", f"{shown(part.type)} is unknown: parts are of type text")
    if not notes:
        raise bad_field(f"{path}.type", f"{part.type} cannot be read: the model reads text only")
    return f"[{UNREADABLE[part.type]}, which this model cannot see]"


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def role_of(part: Part, known: Sequence[str], path: str) -> str:
    """The role of a message, as templates call it. Raises: HttpError for one that is missing or unknown."""
    if part.role not in known:
        said = "it is missing; one of" if part.role is None else f"{shown(part.role)} is none of"
        raise bad_field(f"{path}.role", f"{said} {', '.join(known)}")
    return "system" if part.role == "developer" else str(part.role)


def assistant(text: str, thinking: str = "", calls: Sequence[Mapping[str, Any]] = ()) -> Message:
    """A message of the model's; the two names of thinking are those that templates look for."""
    thought = {"reasoning_content": thinking, "thinking": thinking} if thinking else {}
    return {"role": "assistant", "content": text, **thought, **({"tool_calls": list(calls)} if calls else {})}


def result(identity: str, text: str) -> Message:
    """What the function of a call returned."""
    return {"role": "tool", "content": text, "tool_call_id": identity}


def call(identity: str, name: str, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """A call as templates take it: its arguments as an object where they are one."""
    if isinstance(arguments, str):
        try:
            arguments = parse_object(arguments or "{}")
        except NotJson:
            pass  # what a model once wrote wrongly goes back to it as it was
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Leading instructions as one message, and results with the names of what they answer."""
    found: list[Message] = []
    names: dict[str, str] = {}
    for message in messages:
        if len(found) == 1 and found[0]["role"] == message["role"] == "system":
            found[0]["content"] += "\n\n" + message["content"]
            continue
        for one in message.get("tool_calls", ()):
            names[one["id"]] = one["function"]["name"]
        if message["role"] == "tool" and message["tool_call_id"] in names:
            message = {**message, "name": names[message["tool_call_id"]]}
        found.append(dict(message))
    return tuple(found)
