"""How a command may go on. Law: a message is never completed, and nothing but names and paths is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec_cli.chat.commands import COMMANDS


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A word that may stand in place of the last `replaces` characters typed, and what it is."""

    word: str
    replaces: int
    about: str = ""


def suggestions(typed: str) -> list[Suggestion]:
    """How a command that was typed up to here may go on."""
    if not typed.startswith("/") or "\n" in typed:
        return []
    name, space, argument = typed.partition(" ")
    if not space:
        return [
            Suggestion(command.name, len(name), command.help) for command in COMMANDS if command.name.startswith(name)
        ]
    command = next((known for known in COMMANDS if name in (known.name, *known.aliases)), None)
    if command is None:
        return []
    words = _files(argument) if command.files else command.words()
    return [Suggestion(word, len(argument)) for word in words if word.startswith(argument)]


def _files(typed: str) -> list[str]:
    """Files and folders (with a / behind them) whose path begins as typed."""
    folder, slash, start = typed.rpartition("/")
    try:
        found = sorted((Path(folder + slash) if typed else Path()).expanduser().iterdir())
    except OSError:
        return []
    names = [
        path.name + "/" * path.is_dir() for path in found if not path.name.startswith(".") or start.startswith(".")
    ]
    return [folder + slash + name for name in names]
