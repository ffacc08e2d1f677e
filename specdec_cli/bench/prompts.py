"""The prompts of `specdec bench` (pure): seven kinds of text, eight prompts each, or a file of the user's.

Law: (kind, name) identifies a prompt. The bundled texts are the project's own, under its licence.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from specdec_cli import jsonfile
from specdec_cli.errors import UsageError

# Short prompts first: a slow machine measures few.
KINDS: Final = ("code", "chat", "prose", "reasoning", "summary", "json", "edit")
OWN_KIND: Final = "own"
"""The kind of a file's prompts where the file names none."""

_HINT: Final = 'one prompt a line, or JSON Lines: {"prompt": "…", "kind": "code"}'


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """A prompt, the unit over which the bench averages; `name` is unique within its `kind`."""

    kind: str
    name: str
    text: str


def load(kinds: Sequence[str] | None = None) -> tuple[BenchPrompt, ...]:
    """The bundled prompts of these kinds, each kind once, in the order given; all of them for None.

    Raises: UsageError for an unknown kind, naming the nearest.
    """
    wanted = KINDS if kinds is None else tuple(dict.fromkeys(kinds))
    for kind in wanted:
        if kind not in KINDS:
            nearest = difflib.get_close_matches(kind, KINDS, 1, 0.0)[0]
            raise UsageError(f"--kinds {kind} is none of {', '.join(KINDS)}", f"the nearest: --kinds {nearest}")
    return tuple(prompt for kind in wanted for prompt in _bundled(kind))


def from_file(path: Path) -> tuple[BenchPrompt, ...]:
    """One prompt a line, or JSON Lines `{"prompt": …, "kind"?: …}`, named by line number; empty lines are left out.

    The first line that is not empty decides: `{` means JSON Lines.

    Raises: UsageError, naming file and line, for what is missing, no UTF-8, empty or damaged.
    """
    lines = [(number, line.strip()) for number, line in enumerate(_read(path).split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"--prompts {path} holds no prompt: it is empty", _HINT)
    if not lines[0][1].startswith("{"):
        return tuple(BenchPrompt(OWN_KIND, f"line {number}", line) for number, line in lines)
    return tuple(_of_json(path, number, line) for number, line in lines)


def _bundled(kind: str) -> Iterator[BenchPrompt]:
    text = (resources.files("specdec_cli.bench") / "prompts_data" / f"{kind}.toml").read_text(encoding="utf-8")
    for entry in tomllib.loads(text)["prompt"]:
        yield BenchPrompt(kind, entry["name"], entry["text"].strip("\n"))


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--prompts {path} cannot be read: {error.strerror}", _HINT) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"--prompts {path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8", _HINT
        ) from error


def _of_json(path: Path, number: int, line: str) -> BenchPrompt:
    try:
        values: Any = jsonfile.parse(line)
    except jsonfile.NotJson as error:
        raise UsageError(f"--prompts {path}, line {number} is not JSON: {error}", _HINT) from error
    prompt = values.get("prompt") if isinstance(values, dict) else None
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError(f'--prompts {path}, line {number} has no text under "prompt"', _HINT)
    kind = values.get("kind", OWN_KIND)
    if not isinstance(kind, str) or not kind:
        raise UsageError(f"--prompts {path}, line {number}: the kind is {jsonfile.shown(kind)}, not a name", _HINT)
    return BenchPrompt(kind, f"line {number}", prompt)
