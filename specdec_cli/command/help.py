"""Helps: `-h` of a command has its usual options, `specdec help COMMAND` every one. `specdec help` reads documents."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from specdec_cli.command.command import grouped
from specdec_cli.command.table import SETTINGS, TABLE, Row, documents, moved, row_of
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import nearest

app = typer.Typer()
# What the first screen has: the commands to begin with, and those that measure.
FIRST = {"Start": ("demo", "pull", "chat", "run", "serve"), "Measure": ("race", "bench", "audit", "tune")}
# Columns: longer lines are hard to read, and on shorter ones a column of options leaves their texts no room.
WIDEST, NARROWEST = 100, 40
BRACES = {ord(brace): None for brace in "{}"}


@app.command("help")
@grouped
def help_(*, context: typer.Context, topic: list[str] | None = None, plain: bool = False) -> None:
    """Read about a topic, or about a command.

    Without one, list all commands and topics.
    """
    from specdec_cli.terminal import markdown

    named, known, root = topic or [], documents(), cast(typer.Context, context.find_root())
    if len(named) != 1 or named[0] not in known:
        option = option_called(root, named[0]) if len(named) == 1 else ""
        found = option or listing(command_at(root, named, known), True, plain)
        markdown.print_text(sys.stdout, f"{found}\n", plain)
        return
    text = known[named[0]].read_text("utf-8")
    if named[0] in cast(TyperGroup, root.command).commands:
        text += f"\n## Every option\n\n```\n{listing(command_at(root, named, {}), True, plain=True)}\n```\n"
    markdown.print_document(sys.stdout, text, plain)


def command_at(root: typer.Context, names: list[str], documents: Mapping[str, Path]) -> typer.Context:
    """The command, or the command's own command, of that name. Raises: UsageError for what is neither, nor a topic."""
    context = root
    for depth, name in enumerate(names):
        known = context.command.commands if isinstance(context.command, TyperGroup) else {}
        if context is root and name in documents and name not in known:
            raise unknown([name], names[1], (), {})  # nothing is below a document
        if name not in known:
            raise unknown(names[:depth], name, tuple(known), documents if context is root else {})
        context = typer.Context(known[name], info_name=name, parent=context)
    return context


def unknown(path: list[str], name: str, commands: tuple[str, ...], documents: Mapping[str, Path]) -> UsageError:
    """No such topic after the commands of `path`; the hint is the nearest name, else what tells most of the word."""
    close = nearest(PurePath(name).name, (*commands, *documents))
    told = Counter({topic: file.read_text("utf-8").lower().count(name.lower()) for topic, file in documents.items()})
    topics = [topic for topic, times in told.most_common(3) if times and name.strip()]
    nearby = " ".join([*path, close]).strip()
    hint = f"the nearest: specdec help {nearby}" if nearby else "specdec help lists all topics"
    if topics and not close:
        others = f"; see also {' and '.join(topics[1:])}" if topics[1:] else ""
        hint = f"specdec help {topics[0]} tells of it{others}"
    return UsageError(f"there is no topic {' '.join([*path, name])}", hint)


def prepare(command: TyperCommand | TyperGroup) -> None:
    """Give `command`, and the commands in it, helps from the table."""
    command.short_help = (command.help or "").partition("\n")[0].rstrip(".")
    command.get_help = listing  # type: ignore[method-assign, assignment]  # its context is of the same Typer
    for option in command.params:
        if row_of(command.name or "", option.name or "").setting:
            option.hidden, option.add_to_parser = True, lambda *_: None  # type: ignore[attr-defined, method-assign]
    for inner in getattr(command, "commands", {}).values():
        prepare(inner)


def listing(context: typer.Context, whole: bool = False, plain: bool = False) -> str:
    """The help of a command in sections; `whole` with rare options, defaults, variables and examples.

    Without a command, the first screen has the commands of FIRST, and the `whole` one all of them, and the topics.
    """
    command: Any = context.command
    width = max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))
    root = context.parent is None and hasattr(command, "commands")
    groups: dict[str, list[tuple[str, str]]] = {}
    options: dict[str, list[tuple[str, str]]] = {}
    if root and not whole:
        here = command.commands
        groups = {title: [(n, here[n].short_help) for n in names if n in here] for title, names in FIRST.items()}
    else:
        for inner in getattr(command, "commands", {}).values():
            groups.setdefault(inner.rich_help_panel or "Commands", []).append((inner.name, inner.short_help))
        defaults = {row_of(command.name, one.name): one.default for one in command.get_params(context)}
        for section, row in ((section, row) for section, rows in TABLE.items() for row in rows if row in defaults):
            if not row.setting and (whole or not row.rare):
                spelled = row.spelled if not row.spelled.startswith("--") else f"    {row.spelled}"
                options.setdefault(section, []).append((spelled, _text(row, defaults[row], whole)))
    if root and whole:  # the line after a document's title says what it is about
        groups["Topics"] = [(name, file.read_text("utf-8").splitlines()[2]) for name, file in documents().items()]
    if whole and context.command_path == "specdec config set":
        rows = [row for row in SETTINGS.values() if row.setting]
        options["Settings that are no option"] = [(row.name, _text(row, None, whole)) for row in rows]
    usage = " ".join(["Usage:", context.command_path, *command.collect_usage_pieces(context)]).translate(BRACES)
    blocks = [textwrap.fill(text, width) for text in (usage, *command.help.split("\n\n"))]
    for sections in (groups, options):
        longest = max((len(left) for lines in sections.values() for left, _ in lines), default=0)
        column = 8 if whole and sections is options else min(longest + 4, width * 5 // 12)
        for section, lines in sections.items():
            blocks.append("\n".join([_bold(f"{section}:", plain), *(_line(*line, column, width) for line in lines)]))
    if whole and command.epilog:
        blocks.append("\n".join([_bold("Examples:", plain), *(f"  {line}" for line in command.epilog.splitlines())]))
    elif not whole and (root or command.params):
        named = context.command_path.partition(" ")[2]
        examples = ", with examples" if command.epilog else ""
        blocks.append(f"specdec help {named}: every option{examples}" if named else "all commands: specdec help")
    return "\n\n".join(blocks)


def option_called(root: typer.Context, name: str) -> str:
    """What the table says of an option or setting called `k`, `-k` or `max-tokens`, and whose it is; else empty."""
    commands, told = cast(TyperGroup, root.command).commands, []
    for row in (row for rows in TABLE.values() for row in rows if row.flags):
        if not {name, f"-{name}", f"--{name}"} & {*row.spellings, row.name} or name in commands:
            continue
        takers = [n for n, one in commands.items() if row in (row_of(n, each.name or "") for each in one.params)]
        whose = f"A setting: specdec config set {row.name}." if row.setting else f"Of {', '.join(takers)}."
        told.append(_line(row.name if row.setting else row.spelled, f"{_text(row, None, True)}\n{whose}", 8, WIDEST))
    return "\n".join(told) or moved(f"--{name}")


def _text(row: Row, default: Any, whole: bool) -> str:
    """What an option does, and what holds without it where that is a value; on further lines the rest."""
    known = "" if default is None or isinstance(default, bool) else str(default)
    if not whole:
        return f"{row.help} (default {known})" if known else row.help
    usual = row.default or known
    notes = [f"[default: {usual}]"] * bool(usual) + [f"[env: {row.variable}]"] * bool(row.variable)
    return "\n".join([f"{row.help}. {row.more}" if row.more else row.help, *[" ".join(notes)] * bool(notes)])


def _line(left: str, right: str, column: int, width: int) -> str:
    """`left`, and `right` from `column` on: beside it where there is room."""
    filled = "\n".join(textwrap.fill(text, width - column, break_on_hyphens=False) for text in right.split("\n"))
    first = f"  {left}".ljust(column) if len(left) + 4 <= column else f"  {left}\n" + " " * column
    return first + textwrap.indent(filled, " " * column).lstrip()


def _bold(heading: str, plain: bool) -> str:
    """`heading`, as it is where it is `plain` and where no control code may be written."""
    told = plain or "--plain" in sys.argv or os.environ.get("SPECDEC_PLAIN") or not sys.stdout.isatty()
    dumb = os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")
    return heading if told or dumb else typer.style(heading, bold=True)
