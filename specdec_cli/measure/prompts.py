"""Prompts of bench, in seven kinds of text, and of audit (pure): the bundled ones, or those in a file of the user's.

Law: (kind, name) identifies a prompt. The bundled texts are the project's own, under its licence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import one_name
from specdec_cli.core.textfile import text_of_file

# Short prompts first: a slow machine measures few.
KINDS: Final = ("code", "chat", "prose", "reasoning", "summary", "json", "edit")
OWN_KIND: Final = "own"
"""The kind of a file's prompts where the file names none."""


@dataclass(frozen=True, slots=True)
class PromptId:
    """A prompt, the unit of every average; `name` is unique within its `kind`."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """A prompt with its text."""

    kind: str
    name: str
    text: str

    @property
    def id(self) -> PromptId:
        return PromptId(self.kind, self.name)


def load(kinds: Sequence[str] = KINDS) -> tuple[SamplePrompt, ...]:
    """The bundled prompts of these kinds of bench's, each kind once, in the order given.

    Raises: UsageError for an unknown kind, naming the nearest.
    """
    for kind in kinds:
        one_name("--kinds", KINDS)(kind)
    return tuple(prompt for kind in dict.fromkeys(kinds) for prompt in bundled(kind))


def bundled(kind: str) -> tuple[SamplePrompt, ...]:
    """The prompts of one of KINDS, or of `audit`."""
    file = resources.files("specdec_cli.measure") / "prompts_data" / f"{kind}.toml"
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["prompt"]
    return tuple(SamplePrompt(kind, entry["name"], entry["text"].strip("\n")) for entry in entries)


def from_file(path: Path) -> tuple[SamplePrompt, ...]:
    """One prompt a line, or JSON Lines `{"prompt": …, "kind"?: …}`, named by line number; empty lines are left out.

    The first line that is not empty decides: `{` means JSON Lines.

    Raises: UsageError, naming file and line, for what is missing, no UTF-8, empty or damaged.
    """
    hint = 'one prompt a line, or JSON Lines: {"prompt": "…", "kind": "code"}'
    text = text_of_file(path, f"--prompts {path}", hint)
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"--prompts {path} holds no prompt: it is empty", hint)
    if not lines[0][1].startswith("{"):
        return tuple(SamplePrompt(OWN_KIND, f"line {number}", line) for number, line in lines)
    found = []
    for number, line in lines:
        try:
            values: Any = jsonfile.parse(line)
        except jsonfile.NotJson as error:
            raise UsageError(f"--prompts {path}, line {number} is not JSON: {error}", hint) from error
        prompt, kind = (values.get("prompt"), values.get("kind", OWN_KIND)) if isinstance(values, dict) else ("", "")
        if not (isinstance(prompt, str) and prompt.strip() and isinstance(kind, str)):
            raise UsageError(f'--prompts {path}, line {number} has no text under "prompt"', hint)
        found.append(SamplePrompt(kind, f"line {number}", prompt))
    return tuple(found)
