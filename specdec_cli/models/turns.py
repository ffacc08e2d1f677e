"""Messages in the order and form that a chat template takes (pure).

A protocol allows more orders than most templates render. What a template refuses is made acceptable by one of `FORMS`.
Each of their steps looks at the messages alone and changes only what it must, so that what was rendered before stays a
beginning of what is rendered next. No word is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

Message = Mapping[str, Any]
Messages = list[Message]
Step = Callable[[Messages], Messages]

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
SHORT = re.compile("[A-Za-z0-9]{9}")
HEADING = "[System message]"


def acceptable(messages: Sequence[Message]) -> Iterator[Messages]:
    """The messages in each of `FORMS`, none of them twice."""
    seen: list[Messages] = []
    for steps in FORMS.values():
        found = list(messages)
        for step in steps:
            found = step(found)
        if found not in seen:
            seen.append(found)
            yield found


def holds_all_words(text: str, messages: Sequence[Message]) -> bool:
    """Whether the rendered `text` holds what everybody but the model said: some templates leave a role out."""
    at = 0
    for words in (words_of(message).strip() for message in messages if message["role"] != ASSISTANT):
        if (found := text.find(words, at)) >= 0:  # usually in their order: a long text is searched once
            at = found + len(words)
        elif words not in text and json.dumps(words, ensure_ascii=False)[1:-1] not in text:
            return False
    return True


def words_of(message: Message) -> str:
    """The text of its content, which may be in parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def joined(messages: Sequence[Message]) -> Messages:
    """Consecutive messages of one role as one. Results of calls stay apart, and so do words and the calls after them:
    some templates leave out what is said beside calls.
    """
    found: Messages = []
    for message in messages:
        alike = found and message["role"] == found[-1]["role"] != TOOL
        if alike and bool(message.get("tool_calls")) == bool(found[-1].get("tool_calls")):
            found[-1] = _join(found[-1], message)
        else:
            found.append(message)
    return found


def _join(first: Message, second: Message) -> Message:
    """Both as one message: texts between blank lines, thinking and calls one after the other."""
    both = {**first, **second}
    both["content"] = _text(first, second)
    for name in ("reasoning_content", "thinking"):
        if name in both:
            both[name] = "\n".join(filter(None, (first.get(name), second.get(name))))
    if "tool_calls" in both:
        both["tool_calls"] = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    return both


def _text(*messages: Message) -> str:
    return "\n\n".join(filter(None, (str(message.get("content") or "") for message in messages)))


def _in_place(messages: Messages) -> Messages:
    """Later instructions as the user's words under a heading, where they stand."""
    return [*messages[:1], *(_as_user(one) if one["role"] == SYSTEM else one for one in messages[1:])]


def _as_user(message: Message) -> Message:
    return {"role": USER, "content": f"{HEADING}\n{message['content']}"}


def _alternating(messages: Messages) -> Messages:
    """Words of the user and of the model in turn, the user's first: one message each, empty where nothing was said.

    Calls and their results are words of neither.
    """
    found, last = list[Message](), SYSTEM
    for message in joined(messages):
        role, calls = message["role"], message.get("tool_calls")
        if role == last == USER:
            found.append({"role": ASSISTANT, "content": ""})
        elif last == SYSTEM and role in (ASSISTANT, TOOL):
            found.append({"role": USER, "content": ""})
            last = USER
        found.append(message)
        last = role if role == USER or (role == ASSISTANT and not calls) else last
    return found if last != SYSTEM else [*found, {"role": USER, "content": ""}]


def _toolless(messages: Messages) -> Messages:
    """Calls and their results as words, for a template that knows neither."""
    found: Messages = []
    for message in messages:
        if message["role"] == TOOL:
            name = message.get("name")
            message = {"role": USER, "content": f"[Result{f' of {name}' if name else ''}]\n{message['content']}"}
        elif calls := message.get("tool_calls"):
            said = ({"name": one["function"]["name"], "parameters": one["function"]["arguments"]} for one in calls)
            written = "\n".join(json.dumps(call, ensure_ascii=False) for call in said)
            rest = {name: value for name, value in message.items() if name != "tool_calls"}
            message = {**rest, "content": _text(message, {"content": written})}
        found.append(message)
    return found


def _folded(messages: Messages) -> Messages:
    """The instructions at the beginning of the user's words, which follow them as `_alternating` leaves them."""
    if messages[0]["role"] != SYSTEM:
        return messages
    return [{**messages[1], "content": _text(*messages[:2])}, *messages[2:]]


def one_call_a_turn(messages: Sequence[Message]) -> Messages:
    """A turn of several calls as several turns in their order, each with its result."""
    found: Messages = []
    results: list[Message] = []  # those of the last turn, where it was divided
    for place, message in enumerate(messages):
        calls = message.get("tool_calls") or ()
        if message["role"] == TOOL and results:
            continue
        results = list(takewhile(lambda one: one["role"] == TOOL, messages[place + 1 :])) if len(calls) > 1 else []
        found += _divided(message, calls, results) if len(calls) > 1 else [message]
    return found


def _divided(message: Message, calls: Sequence[Any], results: Sequence[Message]) -> Messages:
    """A turn a call, what is said and thought before the first; a result of no known call is the next one's.

    Calls of one id, as a protocol without ids has those of one function, take a result each.
    """
    found, left, ids = list[Message](), list(results), [call["id"] for call in calls]
    for place, call in enumerate(calls):
        found.append({**({"role": ASSISTANT, "content": ""} if place else message), "tool_calls": [call]})
        its = [at for at, one in enumerate(left) if one.get("tool_call_id") == call["id"]]
        its = its[:1] if call["id"] in ids[place + 1 :] else its
        its = its or [at for at, one in enumerate(left) if one.get("tool_call_id") not in ids][:1]
        found += [left[at] for at in its]
        left = [one for at, one in enumerate(left) if at not in its]
    return [*found, *left]


def words_apart(messages: Sequence[Message]) -> Messages:
    """What is said beside calls as a message of its own before them."""
    found: Messages = []
    for message in messages:
        if message.get("tool_calls") and message.get("content"):
            found.append({"role": ASSISTANT, "content": message["content"]})
            message = {**message, "content": ""}
        found.append(message)
    return found


def _short_ids(messages: Messages) -> Messages:
    """Ids of calls as nine letters, the only ones that Mistral's templates take; results keep to their calls."""

    def short(identity: str) -> str:
        return identity if SHORT.fullmatch(identity) else hashlib.sha256(identity.encode()).hexdigest()[:9]

    found: Messages = []
    for message in messages:
        if calls := message.get("tool_calls"):
            message = {**message, "tool_calls": [{**call, "id": short(call["id"])} for call in calls]}
        if message["role"] == TOOL:
            message = {**message, "tool_call_id": short(message.get("tool_call_id", ""))}
        found.append(message)
    return found


def _written(messages: Messages) -> Messages:
    """Arguments of calls as their JSON text."""
    return _with_arguments(messages, lambda one: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False))


def _objects(messages: Messages) -> Messages:
    """Arguments that are no object as the text in one."""
    return _with_arguments(messages, lambda one: one if isinstance(one, Mapping) else {"arguments": one})


def _with_arguments(messages: Messages, change: Callable[[Any], Any]) -> Messages:
    """The messages with `change` made to the arguments of each call."""

    def changed(call: Any) -> Any:
        return {**call, "function": {**call["function"], "arguments": change(call["function"]["arguments"])}}

    return [
        {**message, "tool_calls": [changed(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _parts(messages: Messages) -> Messages:
    """Contents as lists of parts, for templates of vision models, which iterate them."""
    return [{**message, "content": [{"type": "text", "text": message.get("content") or ""}]} for message in messages]


# What keeps the most of what was said where it was comes first; the models are those whose templates need the form.
FORMS: dict[str, tuple[Step, ...]] = {
    "as it is": (),
    "one call a turn": (one_call_a_turn,),  # Llama 3
    "arguments as text": (_written,),  # DeepSeek, whose templates join them to others
    "one system message": (_objects, _in_place),  # Qwen 3.5, whose template also iterates arguments
    "alternating": (_short_ids, _in_place, _alternating),  # Mistral
    "no tools": (_toolless,),  # Phi 3, Granite 3.0
    "no tools, one system message": (_toolless, _in_place),
    "alternating, no tools": (_toolless, _in_place, _alternating),  # Llama 2, Gemma 3
    "the user and the model alone": (_toolless, _in_place, _alternating, _folded),  # Gemma 2
    "in parts": (_toolless, _in_place, _alternating, _folded, _parts),  # Llama Guard 3, which iterates contents
}
