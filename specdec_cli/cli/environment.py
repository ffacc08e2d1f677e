"""SPECDEC_* variables. Law: one that means nothing is said to, with the nearest that does."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

PREFIX = "SPECDEC_"
# Read outside the options; every other variable sets the default of an option.
OTHERS = ("SPECDEC_API_KEY", "SPECDEC_BLAS", "SPECDEC_DEBUG", "SPECDEC_MODELS")


def variables(app: typer.Typer) -> set[str]:
    """Every variable that specdec reads."""
    return {*OTHERS, *_of(typer.main.get_command(app))}


def _of(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            yield parameter.envvar
    for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
        yield from _of(inner)


def unknown_variables(
    app: typer.Typer, arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """A sentence on each unknown variable; none where these arguments ask for silence."""
    set_here = sorted(name for name in environment if name.startswith(PREFIX))
    if not set_here or {"-q", "--quiet", "--json"} & set(arguments):
        return []
    known = variables(app)
    return [f"{name} is set and means nothing{_nearest(name, known)}" for name in set_here if name not in known]


def _nearest(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), 1, 0.6)
    return f"; the nearest: {close[0]}" if close else ""
