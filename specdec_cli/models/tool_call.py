"""Calls of functions in an answer (pure). Law: what a model wrote is read by its parser, or refused in its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from specdec_cli import jsonfile
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.foreign import guarded

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
        with guarded(partial(_unreadable, inner)):
            found = parse(inner, [dict(tool) for tool in tools] or None)
            calls += [_call(one) for one in (found if isinstance(found, list) else [found])]
    return rest + text, calls


def _call(found: Mapping[str, Any]) -> ToolCall:
    arguments = found.get("arguments", found.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = jsonfile.parse_object(arguments)
    return ToolCall(found["name"], arguments)


def _unreadable(written: str, reason: str) -> SpecdecError:
    return UsageError(f"a tool call cannot be read: {written.strip()[:120]} ({reason})", "ask again")
