"""A question before something is done. Law: only a person at a terminal, or --yes, says yes."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Annotated

import typer

from specdec_cli.errors import SpecdecError, UsageError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def require_answer(question: str, yes: bool) -> None:
    """Raises: UsageError where nobody can answer: stdin is no terminal, and no --yes was given."""
    if not (yes or sys.stdin.isatty()):
        raise UsageError(f"there is no terminal to ask on: {question}", "add --yes to go on without asking")


def ask(question: str, yes: bool, *, usual: bool = False) -> None:
    """`usual` is the answer of Enter alone.

    Raises: UsageError where stdin is no terminal, SpecdecError on a no, KeyboardInterrupt on Ctrl-C.
    """
    require_answer(question, yes)
    if yes:
        return
    width = shutil.get_terminal_size().columns - len(" [y/N]: ")
    folded = textwrap.wrap(question, max(width, 20), break_long_words=False, break_on_hyphens=False)
    try:
        agreed = typer.confirm("\n".join(folded), default=usual, err=True)
    except typer.Abort as error:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from error
    if not agreed:
        raise SpecdecError("nothing was done", "answer y, or add --yes")
