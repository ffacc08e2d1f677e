"""`specdec help`. Law: a topic is a document or a command, and all of it can be read offline."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated, cast

import typer
from typer.core import TyperGroup

from specdec_cli.cli.options import Plain
from specdec_cli.cli.pipes import ignore_broken_pipe
from specdec_cli.errors import UsageError

app = typer.Typer()
FOLDER = Path(__file__).parents[1] / "docs"
FOOTER = "specdec help TOPIC shows one; specdec help COMMAND lists a command's options."


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Documents and commands that begin as typed."""
    commands = cast(TyperGroup, context.find_root().command).commands
    return [name for name in sorted({*documents(), *commands}) if name.startswith(incomplete)]


def documents() -> dict[str, Path]:
    """The documents by their topics, sorted."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.md"))}


Topic = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="A document, or a command.", show_default=False, autocompletion=topics),
]


@app.command("help", short_help="Read about a topic, or about a command.")
@ignore_broken_pipe
def help_(context: typer.Context, topic: Topic = None, plain: Plain = False) -> None:
    """Read about a topic in the terminal; without one, list them all."""
    from specdec_cli.ui.help import print_document, print_topics

    known = documents()
    if not topic:
        print_topics(sys.stdout, [(name, summary(path)) for name, path in known.items()], FOOTER, plain)
    elif len(topic) == 1 and topic[0] in known:
        print_document(sys.stdout, known[topic[0]].read_text("utf-8"), plain)
    else:
        show_command(cast(typer.Context, context.find_root()), topic, tuple(known))


def summary(document: Path) -> str:
    """The line after the title says what a document is about."""
    return document.read_text("utf-8").splitlines()[2]


def show_command(root: typer.Context, names: list[str], documents: tuple[str, ...]) -> None:
    """The `--help` of a command, or of a command's own command. Raises: UsageError for what is neither, nor a topic."""
    context = root
    for depth, name in enumerate(names):
        known = context.command.commands if isinstance(context.command, TyperGroup) else {}
        if name not in known:
            raise unknown(names[:depth], name, (*known, *documents) if context is root else tuple(known))
        context = typer.Context(known[name], info_name=name, parent=context)
    typer.echo(context.command.get_help(context))


def unknown(path: list[str], name: str, words: tuple[str, ...]) -> UsageError:
    """No such topic after the commands of `path`; the hint is the nearest of `words`."""
    nearest = difflib.get_close_matches(name, words, 1, 0.5)
    hint = f"the nearest: specdec help {' '.join([*path, *nearest])}" if nearest else "specdec help lists all topics"
    return UsageError(f"there is no topic {' '.join([*path, name])}", hint)
