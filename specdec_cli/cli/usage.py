"""What `-h` and `--help` show. Law: -h the usual options, --help every one; a flag needs no type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from specdec_cli.cli.options import ADVANCED

EVERY = "Show every option."


def prepare(command: TyperCommand | TyperGroup) -> None:
    """Give `command`, and the commands in it, `-h` beside `--help` where some of its options are advanced."""
    hidden = _advanced(command)
    names = ["--help"] if hidden else ["-h", "--help"]
    command.context_settings = {**command.context_settings, "help_option_names": names}
    if hidden:
        command.params.append(_usual_option("Show the usual options only."))
    own = command.get_help_option(typer.Context(command, help_option_names=names))
    if own is not None and hidden:
        own.help = EVERY
    untyped((*command.params, *([own] if own is not None else [])))
    for inner in getattr(command, "commands", {}).values():
        prepare(inner)


def untyped(parameters: Iterable[object]) -> None:
    """Flags show nothing instead of `<bool>`."""
    for option in parameters:
        if isinstance(option, TyperOption) and option.is_flag and option.metavar is None:
            option.metavar = ""


def _advanced(command: TyperCommand | TyperGroup) -> list[TyperOption]:
    return [o for o in command.params if isinstance(o, TyperOption) and o.rich_help_panel == ADVANCED]


def _usual_option(about: str) -> TyperOption:
    """`-h`, as Typer makes an option of a command."""
    carrier = typer.Typer()
    carrier.command()(_carrier)
    made = cast(TyperOption, get_command(carrier).params[0])
    made.help = about
    return made


def _show_usual(context: typer.Context, wanted: bool) -> None:
    """The help without the advanced options, and how to see them."""
    if not wanted or context.resilient_parsing:
        return
    hidden = _advanced(context.command)  # type: ignore[arg-type]  # all of ours are Typer's
    negations = {id(one): one.secondary_opts for one in context.command.params}
    for one in hidden:
        one.hidden = True
    for every in context.command.params:
        every.secondary_opts = []  # a column of its own for one --no-panel leaves 60 columns no room
    typer.echo(context.get_help())
    for one in hidden:
        one.hidden = False
    for every in context.command.params:
        every.secondary_opts = negations[id(every)]
    typer.echo(f" {len(hidden)} more options: {context.command_path} --help")
    raise typer.Exit


def _carrier(
    usual: Annotated[bool, typer.Option("-h", is_eager=True, expose_value=False, callback=_show_usual)] = False,
) -> None:
    """Never called: Typer makes options of a command's parameters only."""
