"""Calls of functions as a grammar in llguidance's Lark form (pure). Law: what it allows, the model's parser reads.

Only for the form that most templates have: a JSON object with `name` and `arguments` between two marks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

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
