"""Completion of commands. Law: a message is never completed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec_cli.chat.commands import COMMANDS


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A word that may replace the last `replaces` characters typed, and its description."""

    word: str
    replaces: int
    about: str = ""


def suggestions(typed: str) -> list[Suggestion]:
    """The completions of a command typed so far."""
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
    words = [*command.words(), *(_files(argument) if command.files else [])]
    return [Suggestion(word, len(argument)) for word in words if word.startswith(argument)]


def _files(typed: str) -> list[str]:
    """Files, and folders with a / at the end, whose path begins as typed."""
    folder, slash, start = typed.rpartition("/")
    try:
        found = sorted((Path(folder + slash) if typed else Path()).expanduser().iterdir())
    except OSError:
        return []
    names = [
        path.name + "/" * path.is_dir() for path in found if not path.name.startswith(".") or start.startswith(".")
    ]
    return [folder + slash + name for name in names]
