"""What a chat template is asked beside messages and tools (pure): how hard to think, and values by its own names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

# Where transformers saves templates beside the usual one, such as tool_use.jinja.
TEMPLATES_FOLDER = "additional_chat_templates"
# Switches for thinking that templates read; an effort that they do not read by its name turns them.
SWITCHES = ("enable_thinking", "thinking")
EFFORT = "reasoning_effort"
# Efforts that mean no thinking, where there is a switch for it.
NONE = ("none", "minimal")
# What a template is given by whoever renders it.
GIVEN = frozenset(("messages", "tools", "add_generation_prompt", "continue_final_message"))
# transformers' own tag, which jinja2 does not know.
GENERATION = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")
THINK_WORDS = ("on", "off", "low", "medium", "high")
# Efforts that some templates know, and what comes next to them in those that do not.
NEAREST = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
Turn = Literal["answer", "last", "none"]


@dataclass(frozen=True, slots=True)
class TemplateValues:
    """`thinks` and `effort` are the template's own where they are None; `named` are values by its own names.

    `turn`: whose words follow. An `answer` of the assistant's, or more of the `last` message; `none` opens no turn.
    None: more of the last message where it is the assistant's, else an answer.
    """

    thinks: bool | None = None
    effort: str | None = None
    named: Mapping[str, Any] = field(default_factory=dict)
    turn: Turn | None = None

    @classmethod
    def of_effort(cls, effort: str | None, named: Mapping[str, Any] | None = None, turn: Turn | None = None) -> Self:
        """An effort, as OpenAI's clients name it, says also whether to think at all."""
        return cls(None if effort is None else effort not in NONE, effort, named or {}, turn)

    @classmethod
    def of_word(cls, word: str | None) -> Self:
        """What one of `THINK_WORDS` asks; None: nothing."""
        return cls.of_effort({"on": "medium", "off": "none"}.get(word, word) if word else None)

    def read_by(self, names: Collection[str]) -> dict[str, Any]:
        """The values that a template which reads `names` is given."""
        switches = {name: self.thinks for name in SWITCHES if name in names and self.thinks is not None}
        found: dict[str, Any] = dict(switches)
        if self.effort is not None and EFFORT in names and not (switches and self.effort in NONE):
            found[EFFORT] = self.effort
        return found | {name: value for name, value in self.named.items() if name in names}

    def unread_by(self, names: Collection[str]) -> list[str]:
        """What was asked for, and nothing in a template that reads `names` hears."""
        found = [name for name in self.named if name not in names]
        if self.effort is not None and not {EFFORT, *SWITCHES} & {*names}:
            found.append(EFFORT)
        return found


NO_VALUES = TemplateValues()


def nearest_effort(values: Mapping[str, Any], words: Collection[str]) -> dict[str, Any]:
    """The values with an effort that a template knows in which only `words` are written."""
    effort = values.get(EFFORT)
    near = NEAREST.get(effort, effort) if isinstance(effort, str) and effort not in words else effort
    return {**values, EFFORT: near} if EFFORT in values else dict(values)


def names_read(template: str) -> tuple[frozenset[str], frozenset[str]]:
    """(the names that its syntax tree reads and does not set first, the texts in it); none of one that is damaged."""
    from jinja2 import Environment, TemplateError, meta, nodes

    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False)  # never rendered
    try:
        tree = environment.parse(GENERATION.sub("", template))
        texts = (node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str))
        return frozenset(meta.find_undeclared_variables(tree)), frozenset(texts)
    except TemplateError:
        return frozenset(), frozenset()
