"""What a body asks for, whatever its dialect (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.request import Request
from specdec_cli.serve.http.lines import LineLimits

Tool = Mapping[str, Any]
Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Answers to a prompt, as templates and desks need it.

    `messages` are in the shape of chat templates, or `text` is continued as it is (a text, or ids), and so are `others`
    besides; `ends` are then the lengths of its beginnings that other prompts will probably share. `lines` end an answer
    by its lines.
    `tools` are the functions that may be called, in OpenAI's shape. `one_call`: at most one call an answer.
    `thinks` false asks the template to leave thinking out. `rounds`: the client wants to see every round.
    `shape` names the field that asks for the answer's shape. `choices` counts answers to each prompt, `stream` asks for
    them as they come.
    """

    request: Request
    messages: tuple[Mapping[str, Any], ...] = ()
    text: Prompt | None = None
    others: tuple[Prompt, ...] = ()
    ends: tuple[int, ...] = ()
    lines: LineLimits | None = None
    tools: tuple[Tool, ...] = ()
    must_call: tuple[str, ...] | None = None
    one_call: bool = False
    thinks: bool = True
    shape: str = "response_format"
    choices: int = 1
    stream: bool = False
    rounds: bool = False
    key: str | None = None
    noun: str = ""
    model: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """Whether the last message is a beginning of the answer."""
        return bool(self.messages) and self.messages[-1]["role"] == "assistant"

    @property
    def each(self) -> list[Ask]:
        """The same of every prompt."""
        return [self, *(replace(self, text=text) for text in self.others)]
