"""Calls in forms that mlx-lm has no parser for: how each is known, told, enforced and read, a class a form (pure).

* `BareCalls`: Llama 3's, `{"name": …, "parameters": {…}}` and nothing else, or `[f(a=1)]`; and that of models whose
  template knows no functions, such as Gemma 3, which are told of them in words (Google's page on function calling).
* `HarmonyCalls`: gpt-oss's channels (OpenAI's page on the harmony format).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from specdec_cli.models.shape import json_rule
from specdec_cli.models.text import overlap
from specdec_cli.models.tool_calls import ToolCall

Piece = tuple[Literal["thinking", "text"], str] | ToolCall
Spell = Callable[[str], str]
"""Of a special token's text: how a grammar says it."""
Functions = Sequence[tuple[str, str]]
"""(name, JSON schema of the arguments)."""


@dataclass(frozen=True, slots=True)
class BareCalls:
    """`described`: the template knows no functions, and the model is told of them."""

    described: bool = False
    name: ClassVar[str] = "bare_json"
    # Whether the form has a place for thinking, which its grammar and its reader then take over.
    thinks: ClassVar[bool] = False
    # Whether the template takes one call a turn.
    alone: ClassVar[bool] = False

    def description(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """What a model is told that has to be; empty where the template does."""
        if not (self.described and tools):
            return ""
        listed = json.dumps([tool["function"] for tool in tools], ensure_ascii=False, indent=2)
        return f"{TOLD}\n{listed}"

    def grammar(self, functions: Functions, spell: Spell, must: bool, one: bool, answer: str | None) -> str:
        """In llguidance's form: calls alone, or where they need not be, `answer` or any text that begins none."""
        bodies = " | ".join(f"call_{place}" for place in range(len(functions)))
        lines = [f"calls: call{'' if one else ' (' + chr(34) + '; ' + chr(34) + ' call)*'}", f"call: {bodies}"]
        for place, (name, schema) in enumerate(functions):
            head = json.dumps(f'{{"name": {json.dumps(name)}, "parameters": ')
            lines += [f'call_{place}: {head} arguments_{place} "}}"', f"arguments_{place}: {json_rule(schema)}"]
        if must:
            return "\n".join(["start: calls", *lines])
        text = 'answer: TEXT\nTEXT: ANY & ~(/\\s*/ /\\{\\s*"name"/ ANY)\nANY: /(?s:.*)/'
        return "\n".join(["start: answer | calls", text if answer is None else f"answer: {answer}", *lines])

    def reader(self, tools: Sequence[Mapping[str, Any]]) -> BareReader:
        """A reader of one answer."""
        return BareReader(frozenset(tool["function"]["name"] for tool in tools))


TOLD = """You have access to functions. If you decide to invoke any of them, you MUST put it in the format of
{"name": function name, "parameters": dictionary of argument name and its value}
You SHOULD NOT include any other text in the response if you call a function."""
# What may stand before a call: Llama's tag for programs, and a fence as Gemma writes one.
BEFORE = re.compile(r"^\s*(?:<\|python_tag\|>|```(?:json|tool_code|python)?\s)?\s*")
BEGINS = ("<|python_tag|>", "```json\n", "```tool_code\n", "```python\n", "```\n")
BETWEEN = re.compile(r"^[\s;,`]*(?:<\|python_tag\|>\s*)?")


class BareReader:
    """An answer that begins like a call is held until the call is read; what is none of `names` goes on as text."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._held, self._state, self._called = names, "", "before", False

    def feed(self, text: str) -> Iterator[Piece]:
        """The pieces that `text` made certain."""
        self._held += text
        if self._state == "before":
            self._state = self._begins()
        if self._state == "calls":
            yield from self._read()
        if self._state == "text":
            yield from self._tell()

    def finish(self) -> Iterator[Piece]:
        """The rest: calls as code are read once they are all there."""
        if self._state != "text":
            if self._called:
                self._held = BETWEEN.sub("", self._held, count=1)
            rest = BEFORE.sub("", self._held, count=1).removesuffix("```").strip()
            calls = self._code(rest)
            if calls:
                self._held = ""
                yield from calls
        yield from self._tell()

    def _tell(self) -> list[Piece]:
        text, self._held = self._held, ""
        return [("text", text)] if text else []

    def _begins(self) -> str:
        """What the answer is, as far as can be said: `calls`, `text`, or `before` where it may be either."""
        said = BEFORE.sub("", self._held, count=1)
        if not said or any(begin.startswith(said) for begin in BEGINS):
            return "before"
        compact = re.sub(r"\s", "", said)
        for begin in ('{"name":', *(f"[{name}(" for name in self._names)):
            if compact.startswith(begin):
                return "calls"
            if begin.startswith(compact):
                return "before"
        return "text"

    def _read(self) -> Iterator[Piece]:
        """The calls that are whole; the first that is none ends them."""
        while self._state == "calls":
            if self._called:
                self._held = BETWEEN.sub("", self._held, count=1)
            at = len(self._held) - len(BEFORE.sub("", self._held, count=1))
            if not self._held[at:].startswith("{"):
                return
            try:
                found, end = json.JSONDecoder().raw_decode(self._held, at)
            except ValueError:
                return
            call = self._call(found)
            if call is None:
                self._state = "text"
                return
            self._held, self._called = self._held[end:], True
            yield call

    def _call(self, found: Any) -> ToolCall | None:
        arguments = found.get("parameters", found.get("arguments")) or {}
        known = found.get("name") in self._names and isinstance(arguments, dict)
        return ToolCall(found["name"], arguments) if known else None

    def _code(self, text: str) -> list[ToolCall]:
        """Calls written as code, `[f(a=1), g()]` or alone; none where it is anything else."""
        try:
            tree = ast.parse(text, mode="eval").body
            listed = tree.elts if isinstance(tree, ast.List) else [tree]
            calls = [_written(one) for one in listed]
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            return []
        return calls if calls and all(call.name in self._names for call in calls) else []


def _written(node: ast.expr) -> ToolCall:
    """Raises: ValueError for what is no call with literals by name."""
    if not isinstance(node, ast.Call) or node.args or not all(keyword.arg for keyword in node.keywords):
        raise ValueError("no call")
    arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return ToolCall(ast.unparse(node.func), arguments)


CHANNEL, MESSAGE, START, CONSTRAIN = "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"
ENDS = END, CALL, RETURN = ("<|end|>", "<|call|>", "<|return|>")
RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")


@dataclass(frozen=True, slots=True)
class HarmonyCalls:
    """gpt-oss's: a message a channel, and a call a message to `functions.NAME`."""

    name: ClassVar[str] = "harmony"
    thinks: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    def description(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Its template tells the model."""
        return ""

    def grammar(self, functions: Functions, spell: Spell, must: bool, one: bool, answer: str | None) -> str:
        """In llguidance's form, thinking included: a call, or where it need not be, `answer` or any text."""
        bodies = " | ".join(f"call_{place}" for place in range(len(functions)))
        lines = [
            f'thought: {spell(CHANNEL)} "analysis" {spell(MESSAGE)} ended {spell(START)} "assistant"',
            f"ended: free_text | free {spell(END)}\nfree: /(?s:.*)/",
            f"free_text[suffix={json.dumps(END)}]: /(?s:.*)/",
            f"call: {bodies}",
        ]
        for place, (name, schema) in enumerate(functions):
            head = f"{spell(CHANNEL)} {json.dumps(f'commentary to=functions.{name} ')} {spell(CONSTRAIN)}"
            lines += [f'call_{place}: {head} "json" {spell(MESSAGE)} arguments_{place}']
            lines += [f"arguments_{place}: {json_rule(schema)}"]
        if must:
            return "\n".join(["start: thought? call", *lines])
        final = f'final: {spell(CHANNEL)} "final" {spell(MESSAGE)} answer'
        text = "answer: /(?s:.*)/" if answer is None else f"answer: {answer}"
        return "\n".join(["start: thought? (final | call)", final, text, *lines])

    def reader(self, tools: Sequence[Mapping[str, Any]]) -> HarmonyReader:
        """A reader of one answer."""
        return HarmonyReader()


class HarmonyReader:
    """Splits an answer into thinking, text and calls by its channels; without any it is text."""

    def __init__(self) -> None:
        self._held, self._state, self._header, self._body = "", "before", "", ""

    def feed(self, text: str) -> Iterator[Piece]:
        """The pieces that `text` made certain."""
        self._held += text
        while self._held:
            if self._state == "before":
                if self._held[: len(CHANNEL)] == CHANNEL[: len(self._held)] and len(self._held) < len(CHANNEL):
                    return
                self._state = "header" if self._held.startswith(CHANNEL) else "body"
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

    def finish(self) -> Iterator[Piece]:
        """The rest: a call that was cut is read as far as it came, a header that was cut is nothing."""
        if self._state != "header":
            yield from self._say(self._held)
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
            arguments = json.loads(body or "{}")
        except ValueError:
            return [("text", body)]
        return [ToolCall(recipient, arguments)] if isinstance(arguments, dict) else [("text", body)]


CallForm = BareCalls | HarmonyCalls


def form_of(template: str, reads_tools: bool, has: Callable[[str], bool]) -> CallForm | None:
    """The form of a model's calls; `has` says whether its vocabulary has a token. None where it is not known."""
    if all(map(has, (CHANNEL, MESSAGE, START))):
        return HarmonyCalls()
    if not reads_tools:
        return BareCalls(described=True) if template else None
    return BareCalls() if '"parameters": dictionary of argument name' in template else None
