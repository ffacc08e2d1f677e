"""Calls of functions: as a grammar in llguidance's Lark form, and read from an answer by the model's own parser (pure).

The grammar is for the form that most templates have: a JSON object with `name` and `arguments` between two marks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, UsageError, untrusted
from specdec_cli.models.shape import json_rule, symbol

JSON_CALLS = "json_tools"
ANY_OBJECT = '{"type": "object"}'


@dataclass(frozen=True, slots=True)
class Mark:
    """What a call begins or ends with; `token` is its id where it is a token of its own."""

    text: str
    token: int | None = None

    @property
    def rule(self) -> str:
        """A token that is special has no text for a grammar, and one that is not has nothing else: either will do."""
        return symbol(self.text) if self.token is None else f"({symbol(self.token)} | {symbol(self.text)})"


def call_rules(functions: Sequence[tuple[str, str]], start: Mark, end: Mark) -> list[str]:
    """The rule `call`; `functions` are (name, JSON schema of the arguments). Raises: UsageError for a wrong schema."""
    bodies = " | ".join(f"call_{place}" for place in range(len(functions)))
    lines = [f'call: {start.rule} "\\n" ({bodies}) "\\n" {end.rule}']
    for place, (name, schema) in enumerate(functions):
        head = json.dumps(f'{{"name": {json.dumps(name)}, "arguments": ')
        lines += [f'call_{place}: {head} arguments_{place} "}}"', f"arguments_{place}: {json_rule(schema)}"]
    return lines


def required(functions: Sequence[tuple[str, str]], start: Mark, end: Mark, one: bool) -> str:
    """A grammar of one call or, unless `one`, several on lines of their own."""
    more = "" if one else ' ("\\n" call)*'
    return "\n".join([f"start: call{more}", *call_rules(functions, start, end)])


def allowed(functions: Sequence[tuple[str, str]], start: Mark, end: Mark, one: bool, answer: str | None) -> str:
    """A grammar of any text that may go over to calls; where `answer` is a rule, of that or of calls alone."""
    rules = call_rules(functions, start, end)
    more = "" if one else ' ("\\n" call)*'
    if answer is not None:
        return "\n".join([f"start: answer | call{more}", f"answer: {answer}", *rules])
    bodies = rules[0].removeprefix(f"call: {start.rule}")
    lines = ["start: TEXT | before rest" + more, f"rest: {bodies}"]
    lines.append(f"TEXT: ANY & ~(ANY {symbol(start.text)} ANY)\nANY: /(?s:.*)/")
    lines.append(
        f"before: (free_text | free {symbol(start.token)})" if start.token is not None else "before: free_text"
    )
    lines.append(f"free_text[suffix={symbol(start.text)}]: /(?s:.*)/\nfree: /(?s:.*)/")
    return "\n".join([*lines, *rules])


Parser = Callable[[str, list[dict[str, Any]] | None], Any]
"""mlx-lm's for one model: what stands between the marks, and the tools; one call or several."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called."""

    name: str
    arguments: Mapping[str, Any]


def read_calls(
    text: str, marks: tuple[str, str], parse: Parser, tools: Sequence[Mapping[str, Any]] = ()
) -> tuple[str, list[ToolCall]]:
    """(`text` without its calls, the calls); a call stands between the two `marks`, an empty second one being the end.

    Raises: UsageError for a call that cannot be read.
    """
    (start, end), rest, calls = marks, "", []
    while (at := text.find(start)) >= 0:
        rest, text = rest + text[:at], text[at + len(start) :]
        inner, _, text = text.partition(end) if end else (text, "", "")
        with untrusted(partial(_unreadable, inner)):
            found = parse(inner, [dict(tool) for tool in tools] or None)
            calls += [_call(one) for one in (found if isinstance(found, list) else [found])]
    return rest + text, calls


def _call(found: Mapping[str, Any]) -> ToolCall:
    arguments = found.get("arguments", found.get("parameters")) or {}
    if isinstance(arguments, str):
        arguments = jsonfile.parse_object(arguments)
    return ToolCall(found["name"], arguments)


def _unreadable(written: str, reason: str) -> SpecdecError:
    return UsageError(f"a tool call cannot be read: {written.strip()[:120]} ({reason})", "ask again")
