"""Messages of requests -> those of chat templates (pure): every word reaches the template, or is refused.

Templates take texts as `content`, the arguments of calls as objects, and leading instructions as one system message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec_cli.jsonfile import NotJson, parse_object, shown
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.schema import ChatBody, ChatMessage, Part

Message = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
TEXTS = ("text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text")
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
    source = part.source if part.type == "document" else None
    if part.type == "search_result":
        said = [part.title, part.link, _plain_text(part.content, f"{path}.content", notes)]
    elif source is not None and source.type == "text":
        said = [part.title, part.context, source.data]
    elif source is not None and source.type == "content":
        said = [part.title, part.context, _plain_text(source.content, f"{path}.source.content", notes)]
    else:
        return _plain_text([part], path, notes, only=True)
    return "\n".join(filter(None, said))


def _plain_text(parts: Sequence[Part], path: str, notes: bool, only: bool = False) -> str:
    """The text of parts that have no parts of their own; `only` one of them is at `path`."""
    texts = []
    for place, part in enumerate(parts):
        name = f"{path}.type" if only else f"{path}[{place}].type"
        if part.type in TEXTS:
            texts.append(part.text or part.refusal)
        elif part.type not in UNREADABLE:
            raise bad_field(name, f"{shown(part.type)} is unknown: parts are of type text")
        elif not notes:
            raise bad_field(name, f"{part.type} cannot be read: the model reads text only")
        else:
            texts.append(f"[{UNREADABLE[part.type]}, which this model cannot see]")
    return "\n".join(filter(None, texts))


def require_role(role: str | None, known: Sequence[str], path: str) -> None:
    """Raises: HttpError for a role that is missing or unknown."""
    if role not in known:
        said = "it is missing; one of" if role is None else f"{shown(role)} is none of"
        raise bad_field(f"{path}.role", f"{said} {', '.join(known)}")


def openai_messages(body: ChatBody) -> list[Message]:
    """The `messages` of chat/completions. Raises: HttpError."""
    found = [_message(one, f"messages[{place}]") for place, one in enumerate(body.messages)]
    if not found:
        raise bad_field("messages", "it is empty, and at least one message is expected")
    begun = found[-1]["role"] == "assistant"
    if body.continue_final_message not in (None, begun):
        raise bad_field(
            "continue_final_message", "a last message is continued where it is the assistant's, and only then"
        )
    return conversation(found)


def _message(one: ChatMessage, path: str) -> Message:
    require_role(one.role, ROLES, path)
    text = text_of(one.content, f"{path}.content", notes=one.role == "tool")
    if one.role == "assistant":
        calls = [call(each.id, each.function.name, each.function.arguments) for each in one.tool_calls]
        return assistant(text, one.reasoning_content, calls)
    if one.role == "tool":
        return result(one.tool_call_id, text)
    return {"role": "system" if one.role == "developer" else one.role, "content": text}


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


def conversation(messages: Sequence[Message]) -> list[Message]:
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
