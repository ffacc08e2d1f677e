"""Calls of functions between two marks, as mlx-lm's parsers read them, and what all forms of calls share (pure).

A grammar, in llguidance's Lark form, is known for the form that most templates have: a JSON object with `name` and
`arguments`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mlx_lm.tool_parsers import gemma4

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, UsageError, untrusted
from specdec_cli.models.shape import json_rule, symbol
from specdec_cli.models.text import overlap
from specdec_cli.models.turns import Message

JSON_CALLS, PYTHON_CALLS = "json_tools", "pythonic"
# In Python's code: where a text may begin, a whole text, and a call whose values are words or texts without escapes.
BEGINS = r"(?<=[=(\[{,:\s])"
QUOTED = re.compile(BEGINS + r"""(\"{3}|'{3}|"|')(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
WORDS = re.compile(r"""\s*\[[\w.]+\((\w+=("[^"\\]*"|'[^'\\]*'|(?!')[^][(){}",=]+)(,\s*(?=\w+=)|(?=\))))+\)\]\s*""")
# What stands on both sides of a text in Gemma's calls; and with a NUL for each text the beginning of a call, and a call
# whose values are words.
GEMMA4, FUNCTION_GEMMA = "gemma4", "function_gemma"
GEMMA_QUOTES = {GEMMA4: '<|"|>', FUNCTION_GEMMA: "<escape>"}
GEMMA_CALL = re.compile(r"\bcall:[\w.-]+\{")
GEMMA_WORDS = re.compile(r"\s*call:\w+\{(\w+:(\0|[^][{},\0]*)(,(?=\w)|(?=\})))*\}\s*")
# Within it MiniCPM5 quotes marks, of which its parser takes an argument's end for one.
CDATA = re.compile(r"<!\[CDATA\[(?:(?!</param>).)*?\]\]>", re.DOTALL)
ANY_OBJECT = '{"type": "object"}'
# What an argument begins and ends with, in forms whose parsers drop one that is not closed instead of refusing it.
ARGUMENTS = {
    "glm47": ("<arg_key>", "</arg_value>"),
    "kimi_k3": ("<|open|>argument", "<|close|>argument<|sep|>"),
    "longcat": ("<longcat_arg_key>", "</longcat_arg_value>"),
    "minicpm5": ("<param name", "</param>"),
    "minimax_m2": ("<parameter name=", "</parameter>"),
    "muse_spark": ("<atem:parameter", "</atem:parameter>"),
    "qwen3_coder": ("<parameter=", "</parameter>"),
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called."""

    name: str
    arguments: Mapping[str, Any]


def sayable(name: Any, arguments: Any) -> ToolCall:
    """Raises: ValueError for a name that is no text, and arguments that are no object of JSON, as NaN is none."""
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError("a call has a name and an object of arguments")
    json.dumps(arguments, allow_nan=False)
    return ToolCall(name, arguments)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a call begins or ends with; `token` is its id where it is a token of its own."""

    text: str
    token: int | None = None

    @property
    def rule(self) -> str:
        """A token that is special has no text for a grammar, and one that is not has nothing else: either will do."""
        return symbol(self.text) if self.token is None else f"({symbol(self.token)} | {symbol(self.text)})"


Piece = tuple[Literal["thinking", "text"], str] | ToolCall
Spell = Callable[[str], Mark]
"""How a grammar says the text of what may be a special token."""
Functions = Sequence[tuple[str, str]]
"""(name, JSON schema of the arguments)."""
Parser = Callable[[str, list[dict[str, Any]] | None], Any]
"""mlx-lm's for one model: what stands between the marks, and the tools; one call or several."""


@dataclass(frozen=True, slots=True)
class MarkedCalls:
    """What `parse` reads between two `marks`, of which the second may be empty: then it ends with the answer."""

    marks: tuple[str, str]
    parse: Parser
    thinks: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """That of mlx-lm's module."""
        return str(self.parse.__module__).rpartition(".")[2]

    @property
    def enforced(self) -> bool:
        """Whether its grammar is known."""
        return self.name == JSON_CALLS

    @property
    def begins(self) -> str:
        """An answer that is going to call."""
        return self.marks[0]

    def description(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """The template tells the model."""
        return ""

    def history(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Earlier turns as the template takes them."""
        return messages

    def grammar(self, functions: Functions, spell: Spell, must: bool, one: bool, answer: str | None) -> str:
        """One call or, unless `one`, several on lines of their own. Where they need not be, any text that may go over
        to them, or where `answer` is a rule, that or calls alone. Raises: UsageError for a wrong schema.
        """
        start, end = map(spell, self.marks)
        body = f'"\\n" ({" | ".join(f"call_{place}" for place in range(len(functions)))}) "\\n" {end.rule}'
        more, rules = "" if one else ' ("\\n" call)*', [f"call: {start.rule} {body}"]
        for place, (name, schema) in enumerate(functions):
            head = json.dumps(f'{{"name": {json.dumps(name)}, "arguments": ')
            rules += [f'call_{place}: {head} arguments_{place} "}}"', f"arguments_{place}: {json_rule(schema)}"]
        if must:
            return "\n".join([f"start: call{more}", *rules])
        if answer is not None:
            return "\n".join([f"start: answer | call{more}", f"answer: {answer}", *rules])
        begun = "free_text" if start.token is None else f"(free_text | free {symbol(start.token)})"
        lines = [
            f"start: TEXT | before rest{more}",
            f"rest: {body}",
            f"TEXT: ANY & ~(ANY {symbol(start.text)} ANY)\nANY: /(?s:.*)/",
            f"before: {begun}",
            f"free_text[suffix={symbol(start.text)}]: /(?s:.*)/\nfree: /(?s:.*)/",
        ]
        return "\n".join([*lines, *rules])

    def reader(self, tools: Sequence[Mapping[str, Any]]) -> MarkedReader:
        """A reader of one answer."""
        return MarkedReader(self, tools)

    def breaks_off(self, inner: str) -> bool:
        """Whether a call ends in an argument, to which what follows may belong."""
        if self.enforced:
            return _ends_in_word(inner)
        if self.name == PYTHON_CALLS:
            return re.search(BEGINS + "[\"']", QUOTED.sub("", inner)) is not None
        if quote := GEMMA_QUOTES.get(self.name):
            return inner.count(quote) % 2 == 1
        begin, end = ARGUMENTS.get(self.name, ("", ""))
        return inner.rfind(begin) > inner.rfind(end)

    def read(self, inner: str, tools: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
        """The calls that stand between two marks. Raises: UsageError."""
        with untrusted(lambda reason: UsageError(f"a tool call cannot be read: {reason}", "ask again")):
            if self.breaks_off(inner):
                raise ValueError("its last argument is not closed")
            if self.name == PYTHON_CALLS:  # of what is no code, mlx-lm's parser drops what it cannot guess
                with nullcontext() if not WORDS.fullmatch(inner) else suppress(SyntaxError, ValueError):
                    return calls_in_code(QUOTED.sub(_on_one_line, inner).strip())
            bare = "\0".join(inner.split(GEMMA_QUOTES[self.name])[::2]) if self.name in GEMMA_QUOTES else ""
            found = self._parsed(inner, bare, [*map(_with_objects, tools)] or None)
            calls = [_call(one) for one in (found if isinstance(found, list) else [found])]
            if len(GEMMA_CALL.findall(bare)) > len(calls):
                raise ValueError("a call is not closed")
            begin = ARGUMENTS.get(self.name, ("",))[0]
            if begin and CDATA.sub("", inner).count(begin) > sum(len(call.arguments) for call in calls):
                raise ValueError("an argument is not closed, or quotes another one")
            return calls

    def _parsed(self, inner: str, bare: str, tools: list[dict[str, Any]] | None) -> Any:
        """What mlx-lm reads. FunctionGemma's own parser ends at the first brace; only the quotes differ from Gemma 4's.

        Its own takes words without quotes, where `bare`, which is without texts, can mean nothing else.
        """
        if self.name == FUNCTION_GEMMA:
            with suppress(ValueError):
                return gemma4.parse_tool_call(inner.replace(GEMMA_QUOTES[FUNCTION_GEMMA], GEMMA_QUOTES[GEMMA4]))
            if not GEMMA_WORDS.fullmatch(bare):
                raise ValueError("its arguments cannot be told apart")
        return self.parse(inner, tools)


def _with_objects(tool: Mapping[str, Any]) -> dict[str, Any]:
    """`tool` as mlx-lm's parsers look into it: the schema of a property is an object; `true` says nothing."""
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    parameters = function.get("parameters") or {}
    named = parameters.get("properties")
    properties = {name: one for name, one in named.items() if isinstance(one, dict)} if isinstance(named, dict) else {}
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": properties}}}


def _call(found: Mapping[str, Any]) -> ToolCall:
    arguments = found.get("arguments", found.get("parameters")) or {}
    return sayable(found["name"], jsonfile.parse_object(arguments) if isinstance(arguments, str) else arguments)


def _ends_in_word(text: str) -> bool:
    """Whether JSON breaks off in a word, to which what follows may belong."""
    try:
        jsonfile.parse(text)
    except jsonfile.NotJson as error:
        return str(error).startswith("Unterminated string")
    return False


def _on_one_line(text: re.Match[str]) -> str:
    """A text in Python's code, whose ends of lines are spelt; one that is escaped stays, as it is none."""
    spelt = {"\n": "\\n", "\r": "\\r"}
    return re.sub(r"\\.|[\r\n]", lambda found: spelt.get(found[0], found[0]), text[0], flags=re.DOTALL)


def calls_in_code(code: str) -> list[ToolCall]:
    """Calls as Python writes them, in a list or alone. Raises: SyntaxError, ValueError, TypeError and more."""
    tree = Literals().visit(ast.parse(code, mode="eval")).body
    return [_written(one) for one in (tree.elts if isinstance(tree, ast.List) else [tree])]


class Literals(ast.NodeTransformer):
    """JSON's words for Python's: models write either."""

    words: ClassVar[dict[str, Any]] = {"true": True, "false": False, "null": None}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.words[node.id]) if node.id in self.words else node


def _written(node: ast.expr) -> ToolCall:
    """Raises: ValueError, TypeError for what is no call with literals by name."""
    if not isinstance(node, ast.Call) or node.args or not all(keyword.arg for keyword in node.keywords):
        raise ValueError("no call")
    arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return sayable(ast.unparse(node.func), arguments)


class MarkedReader:
    """Splits an answer into text and calls: a call is whole or it is text, and no text is held back without need.

    Text goes on as it comes, but for what may become the mark of a call. Behind the mark the call is kept until it
    ends; what cannot be read then goes on as the text that it was. The end mark may also be part of an argument: while
    one is open, the call ends at a later mark.
    """

    def __init__(self, form: MarkedCalls, tools: Sequence[Mapping[str, Any]]) -> None:
        self._form, self._tools = form, tools
        self._start, self._end = form.marks
        # Blanks before the first text are dropped once a call was read.
        self._held, self._inside, self._fresh, self._said = "", False, False, False
        self._tried: list[int] = []  # lengths with which the call cannot be read

    def feed(self, text: str) -> Iterator[Piece]:
        """The pieces that `text` made certain; no text is empty."""
        self._held += text
        yield from self._split(over=False)

    def finish(self, cut: bool = False) -> Iterator[Piece]:
        """The rest: a call without its end mark is read, but where the answer was `cut` it is text, as arguments may be
        missing of it; JSON alone tells that.
        """
        yield from self._split(over=self._form.enforced or not cut)
        yield from self._tell(len(self._held))

    def _split(self, over: bool) -> Iterator[Piece]:
        while True:
            if self._inside:
                if (pieces := self._call(over)) is None:
                    return
                yield from pieces
                continue
            at = self._held.find(self._start)
            if at < 0:
                sure = self._held[: len(self._held) - overlap(self._held, self._start)]
                yield from self._tell(len(sure.rstrip()))
                return
            yield from self._tell(len(self._held[:at].rstrip()))
            self._inside = True

    def _tell(self, length: int) -> list[Piece]:
        text, self._held = self._held[:length], self._held[length:]
        if self._fresh and not self._said:
            text = text.lstrip()
        self._said = self._said or bool(text)
        return [("text", text)] if text else []

    def _call(self, over: bool) -> Sequence[Piece] | None:
        """The calls that are held, or text up to the first end mark where they cannot be read; None: more must come."""
        while length := self._length(over):
            inner = self._held[:length].lstrip().removeprefix(self._start).removesuffix(self._end)
            calls: list[ToolCall] = []
            with suppress(SpecdecError):
                calls = self._form.read(inner, self._tools)
            self._tried.append(length)
            if calls or not self._form.breaks_off(inner):
                return self._end_call(calls, self._tried[0])
        # What an argument that is never closed quotes is no call; in a word of JSON, a quoted one cannot be read.
        return self._end_call([], self._tried[0] if self._form.enforced else len(self._held)) if over else None

    def _end_call(self, calls: list[ToolCall], told: int) -> Sequence[Piece]:
        """The `calls`, or without any the first `told` characters as text."""
        length, self._inside, self._tried = self._tried[-1], False, []
        if not calls:
            return self._tell(told)
        self._held, self._fresh = self._held[length:], True
        return calls

    def _length(self, over: bool) -> int:
        """The next one that the call may have, its end mark included; 0: none has come."""
        tried = self._tried[-1] if self._tried else 0
        at = self._held.find(self._end, tried) if self._end else -1
        if at >= 0:
            return at + len(self._end)
        return len(self._held) if over and tried < len(self._held) else 0
