"""OpenAI's /v1/responses (pure), without memory: a body read. How an answer is said is in `response_voice`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specdec_cli.jsonfile import shown
from specdec_cli.serve.http import messages
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.chat import thinks
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.fields import Fields
from specdec_cli.serve.http.functions import openai_offer, qualified
from specdec_cli.serve.http.sampling import constraint_of, predicted, request_of
from specdec_cli.serve.model import Model

REFUSED = {
    "previous_response_id": "nothing is kept between requests; send the whole conversation as input",
    "conversation": "nothing is kept between requests; send the whole conversation as input",
    "background": "answers are not made in the background; use stream",
    "prompt": "there are no stored prompts; send instructions and input",
}
ROLES = ("user", "assistant", "system", "developer")
# What a request said that its response says again.
ECHOED = ("instructions", "metadata", "temperature", "top_p", "tools", "tool_choice", "text", "reasoning", "user")


def read(body: Fields, model: Model) -> Ask:
    """What the body asks for. Raises: HttpError."""
    body.refuse(**REFUSED)
    offer = openai_offer(body, nested=False)
    shape = body.inner("text")
    reasoning = body.inner("reasoning")
    request = replace(
        request_of(body, model.base, model.vocab_size),
        constraint=constraint_of(shape.inner("format") if shape else None),
        predict=predicted(body),
    )
    return Ask(
        request=request,
        messages=tuple(conversation(body)),
        tools=offer.functions,
        must_call=offer.must,
        one_call=not body.flag("parallel_tool_calls", True),
        thinks=thinks(body, reasoning.text("effort") if reasoning else None),
        stream=body.flag("stream"),
        rounds=body.flag("specdec"),
        key=body.text("prompt_cache_key"),
        noun="responses",
        extra={name: body.raw(name) for name in ECHOED},
    )


def conversation(body: Fields) -> list[dict[str, Any]]:
    """Instructions and input items, as templates take them; kinds of items that are unknown here are left out."""
    found: list[dict[str, Any]] = []
    if instructions := body.text("instructions"):
        found.append({"role": "system", "content": instructions})
    if isinstance(body.raw("input"), str):
        found.append({"role": "user", "content": body.needed("input")})
    else:
        for item in body.each("input"):
            _take(item, found)
    if not any(message["role"] != "system" for message in found):
        raise bad_field("input", "it is empty, and a text or a list of items is expected")
    return messages.settled(found)


def _take(item: Fields, found: list[dict[str, Any]]) -> None:
    """Add an item to the messages; what a model said, thought and called in one turn is one message."""
    match item.text("type") or "message":
        case "message":
            role = item.choice("role", ROLES)
            if role is None:
                raise bad_field(item.named("role"), f"it is missing; one of {', '.join(ROLES)}")
            text = messages.text_of(item)
            if role == "assistant":
                _said(found, messages.assistant(text))
            else:
                found.append({"role": "system" if role == "developer" else role, "content": text})
        case "function_call":
            name = qualified(item.text("namespace"), item.needed("name"))
            call = messages.call(item.needed("call_id"), name, item.text("arguments") or "{}")
            _said(found, messages.assistant("", calls=[call]))
        case "function_call_output":
            found.append(messages.result(item.needed("call_id"), messages.text_of(item, "output", notes=True)))
        case "reasoning":
            name = "content" if item.has("content") else "summary"
            _said(found, messages.assistant("", messages.text_of(item, name)))
        case "item_reference":
            raise bad_field(item.named("type"), f"{shown('item_reference')} names what is not kept here")


def _said(found: list[dict[str, Any]], message: dict[str, Any]) -> None:
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
