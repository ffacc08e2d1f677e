"""Messages in the order and form that a chat template takes (pure).

A protocol allows more orders than most templates render. What a template refuses is made acceptable step by step. Each
step looks at the messages alone and changes only what it must, so that what was rendered before stays a beginning of
what is rendered next. No word is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product, takewhile
from typing import Any

Message = Mapping[str, Any]
Messages = list[Message]
Step = Callable[[Messages], Messages]

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
SHORT = re.compile("[A-Za-z0-9]{9}")
HEADING = "[System message]"


def acceptable(messages: Sequence[Message]) -> Iterator[Messages]:
    """The messages as they are, then in forms that more and more templates take, none of them twice."""
    seen: list[Messages] = []
    for contents, calls, order in product(CONTENTS, CALLS, ORDERS):
        found = list(messages)
        for step in (*calls, *order, *contents):
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


def _first(messages: Messages) -> Messages:
    """All instructions as one first message."""
    instructions = [message for message in messages if message["role"] == SYSTEM]
    others = [message for message in messages if message["role"] != SYSTEM]
    return [{"role": SYSTEM, "content": _text(*instructions)}, *others] if instructions else others


def _begun(messages: Messages) -> Messages:
    """The user's turn is the first, though nothing was said in it."""
    at = 1 if messages and messages[0]["role"] == SYSTEM else 0
    if at < len(messages) and messages[at]["role"] == USER:
        return messages
    return [*messages[:at], {"role": USER, "content": ""}, *messages[at:]]


def _answered(messages: Messages) -> Messages:
    """Between the result of a call and the user's next words the model answers, though with nothing."""
    found: Messages = []
    for message in messages:
        if found and found[-1]["role"] == TOOL and message["role"] == USER:
            found.append({"role": ASSISTANT, "content": ""})
        found.append(message)
    return found


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
    """The first message's instructions at the beginning of what the user says first."""
    if not messages or messages[0]["role"] != SYSTEM:
        return messages
    instructions, *rest = messages
    if not rest or rest[0]["role"] != USER:
        return [{"role": USER, "content": instructions["content"]}, *rest]
    return [{**rest[0], "content": _text(instructions, rest[0])}, *rest[1:]]


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
    """A turn a call, what is said and thought before the first; a result of no known call is the next one's."""
    found, left, ids = list[Message](), list(results), {call["id"] for call in calls}
    for place, call in enumerate(calls):
        found.append({**({"role": ASSISTANT, "content": ""} if place else message), "tool_calls": [call]})
        its = [one for one in left if one.get("tool_call_id") == call["id"]]
        its = its or [one for one in left if one.get("tool_call_id") not in ids][:1]
        found += its
        left = [one for one in left if one not in its]
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
    """Arguments of calls as their JSON text, which DeepSeek's templates join to others."""

    def written(call: Any) -> Any:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**call["function"], "arguments": text}}

    return [
        {**message, "tool_calls": [written(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _objects(messages: Messages) -> Messages:
    """Arguments that are no object as the text in one, for templates that iterate them."""

    def object_of(call: Any) -> Any:
        arguments = call["function"]["arguments"]
        given = arguments if isinstance(arguments, Mapping) else {"arguments": arguments}
        return {**call, "function": {**call["function"], "arguments": given}}

    return [
        {**message, "tool_calls": [object_of(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _parts(messages: Messages) -> Messages:
    """Contents as lists of parts, for templates of vision models, which iterate them."""
    return [{**message, "content": [{"type": "text", "text": message.get("content") or ""}]} for message in messages]


_ALTERNATING = (_in_place, joined, _begun)
# What keeps the most of what was said where it was comes first.
ORDERS: tuple[tuple[Step, ...], ...] = (
    (),
    (_in_place,),
    (_in_place, joined),
    _ALTERNATING,
    (*_ALTERNATING, _answered),
    (*_ALTERNATING, _folded),
    (*_ALTERNATING, _answered, _folded),
    (_first,),
    (_first, joined),
    (_first, joined, _begun),
    (_first, joined, _begun, _answered),
)
CALLS: tuple[tuple[Step, ...], ...] = ((), (one_call_a_turn,), (_short_ids,), (_objects,), (_written,), (_toolless,))
CONTENTS: tuple[tuple[Step, ...], ...] = ((), (_parts,))
