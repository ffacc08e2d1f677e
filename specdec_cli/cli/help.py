"""Helps: `-h` of a command has its usual options, `specdec help COMMAND` every one. `specdec help` reads documents."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
import textwrap
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from specdec_cli.cli.command import grouped
from specdec_cli.cli.table import TABLE, Row, documents, row_of
from specdec_cli.core.errors import UsageError

app = typer.Typer()
FOOTER = "specdec help TOPIC shows one; specdec help COMMAND lists a command's options."
# Columns: longer lines are hard to read, and on shorter ones a column of options leaves their texts no room.
WIDEST, NARROWEST = 100, 40
BRACES = {ord(brace): None for brace in "{}"}


@app.command("help")
@grouped
def help_(*, context: typer.Context, topic: list[str] | None = None, plain: bool = False) -> None:
    """Read about a topic, or about a command.

    Without one, list all topics.
    """
    from specdec_cli.ui import display, markdown

    known = documents()
    if not topic:
        # The line after a document's title says what it is about.
        summaries = [(name, path.read_text("utf-8").splitlines()[2]) for name, path in known.items()]
        display.print_columns(sys.stdout, summaries, plain)
        if sys.stdout.isatty():
            display.print_notice(sys.stdout, f"\n{FOOTER}", plain)
        return
    root = cast(typer.Context, context.find_root())
    if len(topic) > 1 or topic[0] not in known:
        markdown.print_text(sys.stdout, f"{listing(command_at(root, topic, tuple(known)), True, plain)}\n", plain)
        return
    text = known[topic[0]].read_text("utf-8")
    if topic[0] in cast(TyperGroup, root.command).commands:
        text += f"\n## Every option\n\n```\n{listing(command_at(root, topic, ()), True, plain=True)}\n```\n"
    markdown.print_document(sys.stdout, text, plain)


def command_at(root: typer.Context, names: list[str], documents: tuple[str, ...]) -> typer.Context:
    """The command, or the command's own command, of that name. Raises: UsageError for what is neither, nor a topic."""
    context = root
    for depth, name in enumerate(names):
        known = context.command.commands if isinstance(context.command, TyperGroup) else {}
        if name not in known:
            raise unknown(names[:depth], name, (*known, *documents) if context is root else tuple(known))
        context = typer.Context(known[name], info_name=name, parent=context)
    return context


def unknown(path: list[str], name: str, words: tuple[str, ...]) -> UsageError:
    """No such topic after the commands of `path`; the hint is the nearest of `words`."""
    nearest = difflib.get_close_matches(name, words, 1, 0.5)
    hint = f"the nearest: specdec help {' '.join([*path, *nearest])}" if nearest else "specdec help lists all topics"
    return UsageError(f"there is no topic {' '.join([*path, name])}", hint)


def prepare(command: TyperCommand | TyperGroup) -> None:
    """Give `command`, and the commands in it, helps from the table."""
    command.short_help = (command.help or "").partition("\n")[0].rstrip(".")
    command.get_help = listing  # type: ignore[method-assign, assignment]  # its context is of the same Typer
    for inner in getattr(command, "commands", {}).values():
        prepare(inner)


def listing(context: typer.Context, whole: bool = False, plain: bool = False) -> str:
    """The help of a command in sections; `whole` with rare options, defaults, variables and examples."""
    command: Any = context.command
    width = max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))
    groups: dict[str, list[tuple[str, str]]] = {}
    options: dict[str, list[tuple[str, str]]] = {}
    for inner in getattr(command, "commands", {}).values():
        groups.setdefault(inner.rich_help_panel or "Commands", []).append((inner.name, inner.short_help))
    defaults = {row_of(command.name, one.name): one.default for one in command.get_params(context)}
    for section, row in ((section, row) for section, rows in TABLE.items() for row in rows if row in defaults):
        if whole or not row.rare:
            spelled = row.spelled if not row.spelled.startswith("--") else f"    {row.spelled}"
            options.setdefault(section, []).append((spelled, _text(row, defaults[row], whole)))
    usage = " ".join(["Usage:", context.command_path, *command.collect_usage_pieces(context)]).translate(BRACES)
    blocks = [textwrap.fill(text, width) for text in (usage, *command.help.split("\n\n"))]
    for sections in (groups, options):
        longest = max((len(left) for lines in sections.values() for left, _ in lines), default=0)
        column = 8 if whole and sections is options else min(longest + 4, width * 5 // 12)
        for section, lines in sections.items():
            blocks.append("\n".join([_bold(f"{section}:", plain), *(_line(*line, column, width) for line in lines)]))
    if whole and command.epilog:
        blocks.append("\n".join([_bold("Examples:", plain), *(f"  {line}" for line in command.epilog.splitlines())]))
    elif not whole and command.params:
        named = context.command_path.partition(" ")[2] or "COMMAND"
        examples = ", with examples" if command.epilog or named == "COMMAND" else ""
        blocks.append(f"specdec help {named}: every option{examples}")
    return "\n\n".join(blocks)


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
