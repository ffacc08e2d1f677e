"""A question before something is done. Law: only a person at a terminal, or --yes, says yes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from specdec_cli.errors import SpecdecError, UsageError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def ask(question: str, yes: bool) -> None:
    """Raises: UsageError where stdin is no terminal, SpecdecError on a no, KeyboardInterrupt on Ctrl-C."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"there is no terminal to ask on: {question}", "add --yes to go on without asking")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from error
    if not agreed:
        raise SpecdecError("nothing was done", "answer y, or add --yes")
