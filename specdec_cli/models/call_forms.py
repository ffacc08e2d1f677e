"""Forms of calls: how each is known, told, enforced and read, a class a form (pure).

* `MarkedCalls`: those that mlx-lm has a parser for.
* `BareCalls`: Llama 3's, `{"name": …, "parameters": {…}}` and nothing else, or `[f(a=1)]`; and that of models whose
  template knows no functions, such as Gemma 3, which are told of them in words (Google's page on function calling).
* `HarmonyCalls`: gpt-oss's channels (OpenAI's page on the harmony format).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import regex

from specdec_cli.models.shape import json_rule
from specdec_cli.models.text import overlap
from specdec_cli.models.tool_calls import (
    Functions,
    MarkedCalls,
    MarkedReader,
    Piece,
    Spell,
    ToolCall,
    calls_in_code,
    sayable,
)
from specdec_cli.models.turns import Message, one_call_a_turn, words_apart

TAG = "<|python_tag|>"
# What may stand before a call: Llama's tag for programs, and a fence as Gemma writes one. Blanks are those of ASCII, of
# which every grammar knows.
FENCE = r"(```(json|tool_code|tool_call|python)?)?\s*"
LEAD = rf"(<\|python_tag\|>)?\s*{FENCE}"
HEAD = r'\{\s*("type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*'
LINE = re.compile(r"(?:^|\n)\s*|(?=<\|python_tag\|>)", re.ASCII)
# Behind a call: what separates it from the next one, or closes its list or its fence.
CLOSE = re.compile(r"[\s;,\]]*(?:```(?!\w))?[\s;,]*", re.ASCII)
CLOSES = re.compile(r"[\s;,\]]*`{0,3}[\s;,]*", re.ASCII)
AND_MORE = ' ("; " call)*'
TOLD = """You have access to functions. If you decide to invoke any of them, you MUST put it in the format of
{"name": function name, "parameters": dictionary of argument name and its value}
You SHOULD NOT include any other text in the response if you call a function."""


@dataclass(frozen=True, slots=True)
class BareCalls:
    """`described`: the template knows no functions, and the model is told of them."""

    described: bool = False
    name: ClassVar[str] = "bare_json"
    # An answer that is going to call; there, any function may be meant.
    begins: ClassVar[str] = '{"name": "'
    # Whether the form has a place for thinking, which its grammar and its reader then take over.
    thinks: ClassVar[bool] = False
    enforced: ClassVar[bool] = True

    def description(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """What a model is told that has to be; empty where the template does."""
        if not (self.described and tools):
            return ""
        listed = json.dumps([tool["function"] for tool in tools], ensure_ascii=False, indent=2)
        return f"{TOLD}\n{listed}"

    def history(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Earlier turns as the template takes them: Llama's leaves out what is said beside a call."""
        return messages if self.described else words_apart(messages)

    def grammar(self, functions: Functions, spell: Spell, must: bool, one: bool, answer: str | None) -> str:
        """In llguidance's form: calls alone, or where they need not be, `answer` or any text that may go over to them.

        In such a text no other call is read.
        """
        bodies = " | ".join(f"call_{place}" for place in range(len(functions)))
        lines = [f"call: {bodies}"]
        for place, (name, schema) in enumerate(functions):
            head = json.dumps(f'{{"name": {json.dumps(name)}, "parameters": ')
            lines += [f'call_{place}: {head} arguments_{place} "}}"', f"arguments_{place}: {json_rule(schema)}"]
        calls = f"call{'' if one else AND_MORE}"
        if must:
            return "\n".join([f"start: {calls}", *lines])
        if answer is not None:
            return "\n".join([f"start: answer | {calls}", f"answer: {answer}", *lines])
        return "\n".join(["start: TEXT | before (opened behind | OTHER)", *_opened(functions, one), *lines])

    def reader(self, tools: Sequence[Mapping[str, Any]]) -> BareReader:
        """A reader of one answer."""
        return BareReader([tool["function"]["name"] for tool in tools])


def _opened(functions: Functions, one: bool) -> list[str]:
    """Rules and terminals of a text in which no call is read, and of one that goes over to calls."""
    lines = [
        "TEXT: ANY & ~((LINE | TAGGED) (BEGIN | CODE) ANY | TAGGED NAME BRACE ANY)\nANY: /(?s:.*)/",
        'before[lazy]: BEFORE\nBEFORE: (TEXT "\\n")? /\\s*/ BEGIN',
        rf'BEGIN: /{FENCE}(\[\s*)?{HEAD}"/',
        'OTHER: ANY & ~(NAME "\\"" ANY | (LINE | TAGGED) (BEGIN NAME "\\"" | CODE) ANY | TAGGED NAME BRACE ANY)',
        r"LINE: /(?s:(.*\n)?)\s*/",
        r"TAGGED: /(?s:.*)<\|python_tag\|>\s*/",
        rf"CODE: /{FENCE}\[\s*|```tool_code\s*/ NAME BRACE",
        r"BRACE: /\s*\(/",
        "NAME: " + " | ".join(json.dumps(name) for name, _ in functions),
        "opened: " + " | ".join(f"OPEN_{place} BLANK? arguments_{place} CLOSED" for place in range(len(functions))),
        r'MIDDLE: /"\s*,\s*"parameters"\s*:/',
        "BLANK: /\\s+/\nCLOSED: /\\s*\\}/",
        f"behind: {'' if one else '(NEXT? call)* '}ENDED?",
        r"NEXT: /\s*[;,]\s*|\s+/",
        r"ENDED: /[\s\]]*(```\s*)?/",
    ]
    return lines + [f"OPEN_{place}: {json.dumps(name)} MIDDLE" for place, (name, _) in enumerate(functions)]


class BareReader:
    """Reads a call of one of `names` wherever a line begins with it; all else goes on as the text that it was.

    A call is whole or it is text. Calls as code are read once the answer is all there.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._begin, self._held = names, _beginning(names), ""
        # What is held begins a line if `_fresh`; behind a call if `_called`. No call begins before `_skip`.
        self._fresh, self._called, self._skip = True, False, 0

    def feed(self, text: str, last: bool = False) -> Iterator[Piece]:
        """The pieces that `text` made certain; the `last` text makes all certain."""
        self._held += text
        while not self._called or self._close(last):
            length, found = self._look()
            yield from self._tell(len(self._held) if last and found is None else length)
            if found is None or not (last or (found["object"] and "}" in text)):
                return
            kind, read = ("object", self._object) if found["object"] else ("code", self._code)
            calls, end = read(found.start(kind) - length)
            if calls:
                yield from calls
                self._held, self._called, self._skip = self._held[end:], True, 0
            elif end or last:
                self._skip = found.start() - length + 1
            else:
                return

    def finish(self, cut: bool = False) -> Iterator[Piece]:
        """The rest: calls as code, and what begins like a call and is none; brackets tell a call that was `cut`."""
        return self.feed("", last=True)

    def _tell(self, length: int) -> list[Piece]:
        text, self._held = self._held[:length], self._held[length:]
        self._fresh, self._skip = self._fresh and not text, max(0, self._skip - length)
        return [("text", text)] if text else []

    def _close(self, last: bool) -> bool:
        """Take off what closes a call; whether more may be there than that."""
        if not last and CLOSES.fullmatch(self._held):
            return False
        self._held, self._called, self._fresh = CLOSE.sub("", self._held, count=1), False, True
        return True

    def _look(self) -> tuple[int, Any]:
        """(how many characters are text for certain, the beginning of a call if one follows them)."""
        for line in LINE.finditer(self._held):
            begins = line.start() or self._fresh or "\n" in line.group() or self._held.startswith(TAG, line.end())
            if line.end() < self._skip or not begins:
                continue
            if found := self._begin.match(self._held, line.end(), partial=True):
                return len(self._held[: line.start()].rstrip()), None if found.partial else found
        sure = self._held[: len(self._held) - overlap(self._held, TAG)]
        return len(sure.rstrip()), None

    def _object(self, begin: int) -> tuple[list[ToolCall], int]:
        """(the call that the object is, if it is one; where it ends, 0 where it is not whole)."""
        try:
            found, end = json.JSONDecoder().raw_decode(self._held, begin)
        except (ValueError, RecursionError):
            return [], 0
        with suppress(ValueError):
            call = sayable(found["name"], found.get("parameters", found.get("arguments")) or {})
            return [call] if call.name in self._names else [], end
        return [], end

    def _code(self, begin: int) -> tuple[list[ToolCall], int]:
        """(calls written as code, `[f(a=1), g()]` or alone, none where it is anything else; where all ends)."""
        written = self._held[begin:].rstrip().removesuffix("```").strip()
        try:
            calls = calls_in_code(written)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            calls = []
        return calls if all(call.name in self._names for call in calls) else [], len(self._held)


def _beginning(names: Collection[str]) -> Any:
    """The beginning of a call, which `regex` also matches in part; a group says where its `object` or `code` begins."""
    quoted = {quote for name in names for quote in (json.dumps(name), json.dumps(name, ensure_ascii=False))}
    said, called = ("|".join(map(regex.escape, some)) for some in (quoted, names))
    code = rf"({LEAD}(?=\[)|(<\|python_tag\|>)?\s*```tool_code\s*|<\|python_tag\|>\s*)(?<code>(\[\s*)?({called})\s*\()"
    return regex.compile(rf"{LEAD}(\[\s*)?(?<object>{HEAD}({said}))|{code}", regex.ASCII)


CHANNEL, MESSAGE, START, CONSTRAIN = "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"
ENDS = END, CALL, RETURN = ("<|end|>", "<|call|>", "<|return|>")
# A prompt ends with the role, behind which the channel follows, or the recipient of a call.
RECIPIENT_BEGINS = "to="
RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")


@dataclass(frozen=True, slots=True)
class HarmonyCalls:
    """gpt-oss's: a message a channel, and a call a message to `functions.NAME`."""

    name: ClassVar[str] = "harmony"
    begins: ClassVar[str] = f"{CHANNEL}commentary to=functions."
    thinks: ClassVar[bool] = True
    enforced: ClassVar[bool] = True

    def description(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Its template tells the model."""
        return ""

    def history(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Earlier turns as the template takes them: one call a turn, and what is said beside it is thought."""
        return one_call_a_turn([_thought(message) for message in messages])

    def grammar(self, functions: Functions, spell: Spell, must: bool, one: bool, answer: str | None) -> str:
        """In llguidance's form: a call, or where it need not be, `answer` or any text; before it, thinking and, unless
        the answer has a shape, what the user is told of the calls; two such messages at most before one that must be.
        """
        bodies, constrain = " | ".join(f"call_{place}" for place in range(len(functions))), spell(CONSTRAIN).rule
        channel, message, start = (spell(mark).rule for mark in (CHANNEL, MESSAGE, START))
        before = '"analysis"' if answer is not None else '("analysis" | "commentary")'
        lines = [
            f'before: {channel} {before} {message} ended {start} "assistant"',
            f"ended: ENDED | UNMARKED {spell(END).rule}\nENDED: UNMARKED {json.dumps(END)}",
            "UNMARKED: ANY & ~(ANY MARK ANY)\nANY: /(?s:.*)/",
            f"MARK: {' | '.join(map(json.dumps, (*ENDS, START)))}",
            f"call: {bodies}",
        ]
        for place, (name, schema) in enumerate(functions):
            to = json.dumps(f"to=functions.{name}")  # in either of the places that OpenAI's page gives
            heads = f'{channel} "commentary " {to} " " | " " {to} {channel} "commentary "'
            lines += [f'call_{place}: ({heads}) {constrain} "json" {message} arguments_{place}']
            lines += [f"arguments_{place}: {json_rule(schema)}"]
        if must:
            return "\n".join(["start: before{0,2} call", *lines])
        final = f'final: {channel} "final" {message} answer'
        text = "answer: UNMARKED" if answer is None else f"answer: {answer}"
        return "\n".join(["start: before* (final | call)", final, text, *lines])

    def reader(self, tools: Sequence[Mapping[str, Any]]) -> HarmonyReader:
        """A reader of one answer."""
        return HarmonyReader()


def _thought(message: Message) -> Message:
    thinking, said = message.get("thinking"), message.get("content")
    if not (thinking and said and message.get("tool_calls")):
        return message
    return {**message, "content": "", "thinking": f"{thinking}\n\n{said}"}


class HarmonyReader:
    """Splits an answer into thinking, text and calls by its channels; without any it is text."""

    def __init__(self) -> None:
        self._held, self._state, self._header, self._body = "", "before", "", ""

    def feed(self, text: str) -> Iterator[Piece]:
        """The pieces that `text` made certain."""
        self._held += text
        while self._held:
            if self._state == "before":
                said = self._held.lstrip()
                if any(begin.startswith(said) for begin in (CHANNEL, RECIPIENT_BEGINS)):
                    return
                self._state = "header" if said.startswith((CHANNEL, RECIPIENT_BEGINS)) else "body"
            if self._state == "header":
                header, mark, rest = self._held.partition(MESSAGE)
                if not mark:
                    return
                self._header, self._held, self._state = header, rest, "body"
                continue
            ends = [at for mark in (*ENDS, START) if (at := self._held.find(mark)) >= 0]
            if not ends:
                sure = len(self._held) - max(overlap(self._held, mark) for mark in (*ENDS, START))
                yield from self._say(self._held[:sure])
                self._held = self._held[sure:]
                return
            at = min(ends)
            mark = next(mark for mark in (*ENDS, START) if self._held.startswith(mark, at))
            yield from self._say(self._held[:at])
            yield from self._close()
            self._held, self._state = self._held[at + len(mark) :], "header"

    def finish(self, cut: bool = False) -> Iterator[Piece]:
        """The rest: a header that was cut is nothing, and neither are arguments of which the first sign was `cut`."""
        if self._state != "header":
            yield from self._say(self._held)
            if self._body or not cut:
                yield from self._close()

    @property
    def _recipient(self) -> str | None:
        found = RECIPIENT.search(self._header)
        return found.group(1) if found else None

    def _say(self, text: str) -> list[Piece]:
        if self._recipient:
            self._body += text
            return []
        thinks = f"{CHANNEL}analysis" in self._header
        return [("thinking" if thinks else "text", text)] if text else []

    def _close(self) -> list[Piece]:
        """The call to a recipient, or its text where that is no JSON."""
        recipient, body, self._header, self._body = self._recipient, self._body, "", ""
        if recipient is None:
            return []
        try:
            return [sayable(recipient, json.loads(body or "{}"))]
        except (ValueError, RecursionError):
            return [("text", body)]


CallForm = MarkedCalls | BareCalls | HarmonyCalls
CallReader = MarkedReader | BareReader | HarmonyReader


def ends_of(has: Callable[[str], bool]) -> tuple[str, ...]:
    """Tokens that end an answer whatever the files say: behind a call gpt-oss would go on with a result of its own."""
    return (CALL, RETURN) if all(map(has, (CHANNEL, MESSAGE, START, CALL, RETURN))) else ()


def form_of(template: str, reads_tools: bool, has: Callable[[str], bool]) -> CallForm | None:
    """The form of a model's calls; `has` says whether its vocabulary has a token. None where it is not known."""
    if all(map(has, (CHANNEL, MESSAGE, START))):
        return HarmonyCalls()
    if not reads_tools:
        return BareCalls(described=True) if template else None
    return BareCalls() if '"parameters": dictionary of argument name' in template else None
