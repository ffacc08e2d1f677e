"""What a body asks for, whatever its dialect (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec_cli.request import Request
from specdec_cli.serve.http.lines import LineLimits

Tool = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """Answers to one prompt, as templates and desks need it.

    `messages` are in the shape of chat templates, or `text` is continued as it is (a text, or ids); `ends` are then
    the lengths of its beginnings that other prompts will probably share. `lines` end an answer by its lines.
    `tools` are the functions that may be called, in OpenAI's shape. `one_call`: at most one call an answer.
    `thinks` false asks the template to leave thinking out. `rounds`: the client wants to see every round.
    `choices` counts answers to one prompt, `stream` asks for them as they come.
    """

    request: Request
    messages: tuple[Mapping[str, Any], ...] = ()
    text: str | tuple[int, ...] | None = None
    ends: tuple[int, ...] = ()
    lines: LineLimits | None = None
    tools: tuple[Tool, ...] = ()
    must_call: tuple[str, ...] | None = None
    one_call: bool = False
    thinks: bool = True
    choices: int = 1
    stream: bool = False
    rounds: bool = False
    key: str | None = None
    noun: str = ""
    model: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
