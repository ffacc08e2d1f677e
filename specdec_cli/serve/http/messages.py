"""OpenAI's messages -> those of chat templates (pure). Law: every word reaches the template, or is refused.

Templates take texts as `content`, the arguments of calls as objects, and leading instructions as one system message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specdec_cli.jsonfile import NotJson, parse_object, shown
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.fields import Fields

Message = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
TEXTS = ("text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text")
UNREADABLE = {
    **dict.fromkeys(("image_url", "input_image", "image"), "an image"),
    **dict.fromkeys(("input_audio", "audio"), "a sound"),
    **dict.fromkeys(("file", "input_file", "document"), "a file"),
    "video_url": "a video",
}


def text_of(fields: Fields, name: str = "content", notes: bool = False) -> str:
    """The text of a content: a text, or a list of parts. With `notes` what no text model can read becomes a note of it.

    A function's result is worth notes: refused, it would be refused with every later turn of its conversation too.
    Raises: HttpError for what cannot be read.
    """
    return _joined(fields, name, notes, part_text)


def part_text(part: Fields, notes: bool = False) -> str:
    """The text of one part, as in `text_of`: of a document and of what a search found, with its title."""
    kind, source = part.text("type"), part.inner("source") if part.raw("type") == "document" else None
    if kind == "search_result":
        said = [part.text("title"), part.text("source"), _joined(part, "content", notes, _plain_text)]
    elif source is not None and source.raw("type") in ("text", "content"):
        name = "data" if source.raw("type") == "text" else "content"
        said = [part.text("title"), part.text("context"), _joined(source, name, notes, _plain_text)]
    else:
        return _plain_text(part, notes)
    return "\n".join(filter(None, said))


def _plain_text(part: Fields, notes: bool) -> str:
    """The text of a part that has no parts of its own."""
    kind = part.text("type") or "text"
    if kind in TEXTS:
        return part.text("text") or part.text("refusal") or ""
    if kind not in UNREADABLE:
        raise bad_field(part.named("type"), f"{shown(kind)} is unknown: parts are of type text")
    if not notes:
        raise bad_field(part.named("type"), f"{kind} cannot be read: the model reads text only")
    return f"[{UNREADABLE[kind]}, which this model cannot see]"


def _joined(fields: Fields, name: str, notes: bool, read: Callable[[Fields, bool], str]) -> str:
    value = fields.raw(name)
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(filter(None, (read(part, notes) for part in fields.each(name))))


def openai_messages(body: Fields) -> list[Message]:
    """The `messages` of chat/completions. Raises: HttpError."""
    found: list[Message] = []
    for message in body.each("messages"):
        role = message.choice("role", ROLES)
        if role is None:
            raise bad_field(message.named("role"), f"it is missing; one of {', '.join(ROLES)}")
        text = text_of(message, notes=role == "tool")
        if role == "assistant":
            found.append(assistant(text, message.text("reasoning_content") or "", calls_of(message)))
        elif role == "tool":
            found.append(result(message.text("tool_call_id") or "", text))
        else:
            found.append({"role": "system" if role == "developer" else role, "content": text})
    if not found:
        raise bad_field(body.named("messages"), "it is empty, and at least one message is expected")
    continued = found[-1]["role"] == "assistant"
    if body.flag("continue_final_message", continued) != continued:
        raise bad_field(
            "continue_final_message", "a last message is continued where it is the assistant's, and only then"
        )
    return settled(found)


def assistant(text: str, thinking: str = "", calls: Sequence[Mapping[str, Any]] = ()) -> Message:
    """A message of the model's; the two names of thinking are those that templates look for."""
    thought = {"reasoning_content": thinking, "thinking": thinking} if thinking else {}
    return {"role": "assistant", "content": text, **thought, **({"tool_calls": list(calls)} if calls else {})}


def result(call: str, text: str) -> Message:
    """What a function returned."""
    return {"role": "tool", "content": text, "tool_call_id": call}


def call(identity: str, name: str, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """A call as templates take it: its arguments as an object where they are one."""
    if isinstance(arguments, str):
        try:
            arguments = parse_object(arguments or "{}")
        except NotJson:
            pass  # what a model once wrote wrongly goes back to it as it was
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls_of(message: Fields) -> list[dict[str, Any]]:
    """The calls of an assistant's message."""
    found = []
    for one in message.each("tool_calls"):
        function = one.inner("function")
        if function is None:
            raise bad_field(one.named("function"), "it is missing, and an object is expected")
        arguments = function.raw("arguments")
        written = arguments if isinstance(arguments, dict) else function.text("arguments") or ""
        found.append(call(one.text("id") or "", function.needed("name"), written))
    return found


def settled(messages: Sequence[Message]) -> list[Message]:
    """Leading instructions as one message, and results with the names of what they answer."""
    found: list[Message] = []
    names: dict[str, str] = {}
    for message in messages:
        first = found[0] if len(found) == 1 else None
        if first is not None and first["role"] == message["role"] == "system":
            first["content"] += "\n\n" + message["content"]
            continue
        for one in message.get("tool_calls", ()):
            names[one["id"]] = one["function"]["name"]
        if message["role"] == "tool" and message["tool_call_id"] in names:
            message = {**message, "name": names[message["tool_call_id"]]}
        found.append(dict(message))
    return found
