"""`specdec help`, and the two helps of a command: -h shows the usual options, --help every one."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Annotated, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from specdec_cli.cli.options import ADVANCED, Plain
from specdec_cli.errors import UsageError
from specdec_cli.format import count

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
def help_(context: typer.Context, topic: Topic = None, plain: Plain = False) -> None:
    """Read about a topic in the terminal; without one, list them all."""
    from specdec_cli.ui.display import print_columns, print_notice
    from specdec_cli.ui.markdown import print_document

    known = documents()
    if not topic:
        # The line after a document's title says what it is about.
        summaries = [(name, path.read_text("utf-8").splitlines()[2]) for name, path in known.items()]
        print_columns(sys.stdout, summaries, plain)
        if sys.stdout.isatty():
            print_notice(sys.stdout, f"\n{FOOTER}", plain)
    elif len(topic) == 1 and topic[0] in known:
        print_document(sys.stdout, known[topic[0]].read_text("utf-8"), plain)
    else:
        show_command(cast(typer.Context, context.find_root()), topic, tuple(known))


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


def prepare(command: TyperCommand | TyperGroup) -> None:
    """Give `command`, and the commands in it, `-h` beside `--help` where some of its options are advanced."""
    hidden = _advanced(command)
    names = ["--help"] if hidden else ["-h", "--help"]
    command.context_settings = {**command.context_settings, "help_option_names": names}
    own = command.get_help_option(typer.Context(command, help_option_names=names))
    if hidden and own is not None:
        usual = copy(own)
        usual.name, usual.opts = "usual", ["-h"]
        usual.callback = _show_usual  # type: ignore[assignment]  # its context is of the same Typer
        usual.help, own.help = "Show the usual options only.", "Show every option."
        command.params.append(usual)
    untyped((*command.params, own))
    for inner in getattr(command, "commands", {}).values():
        prepare(inner)


def untyped(parameters: Iterable[object]) -> None:
    """Flags show nothing instead of `<bool>`, and an argument nothing behind its own name."""
    for option in parameters:
        if isinstance(option, TyperOption) and option.is_flag and option.metavar is None:
            option.metavar = ""
        elif isinstance(option, TyperArgument):
            option.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # no `TOPIC <list[str]>`


def _advanced(command: TyperCommand | TyperGroup) -> list[TyperOption]:
    return [o for o in command.params if isinstance(o, TyperOption) and o.rich_help_panel == ADVANCED]


def _show_usual(context: typer.Context, option: object, wanted: bool) -> None:
    """The help without the advanced options, and how to see them."""
    if not wanted or context.resilient_parsing:
        return
    hidden = _advanced(context.command)  # type: ignore[arg-type]  # all of ours are Typer's
    for one in hidden:
        one.hidden = True
    for every in context.command.params:
        every.secondary_opts = []  # a column of its own for one --no-panel leaves 60 columns no room
    typer.echo(context.get_help())
    typer.echo(f" {count(len(hidden), 'more option')}: {context.command_path} --help")
    raise typer.Exit
