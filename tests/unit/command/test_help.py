"""Helps of commands, and `specdec help`: topics and documents, in a pipe and on a terminal."""

import os
import re
from pathlib import Path

import pytest
import typer

from fakes.terminal import Terminal
from specdec_cli.command.help import FIRST
from specdec_cli.command.table import row_of
from specdec_cli.main import PANELS, app

DOCS = Path(__file__).parents[3] / "specdec_cli/docs"


def on_a_terminal(*arguments, rows=24, **environment):
    """All that is written there."""
    terminal = Terminal(os.environ["HOME"], *arguments, rows=rows, **environment)
    assert terminal.end()[0] == 0
    return terminal.raw.decode()


@pytest.mark.parametrize("columns", [60, 80])
def test_the_first_screen_has_no_more_than_22_rows_with_the_commands_to_begin_with(specdec, monkeypatch, columns):
    """`run` and `chat` scrolled off a terminal of 24 rows."""
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = specdec()
    lines = out.splitlines()
    assert (code, err) == (0, "") and len(lines) <= 22 and max(map(len, lines)) <= columns
    named = [name for names in FIRST.values() for name in names]
    assert [line.split()[0] for line in lines if line.startswith("  ")] == named
    assert lines[-1] == "all commands: specdec help" and specdec("--help") == specdec("-h") == (0, out, "")


def test_help_alone_lists_every_command_and_every_document_in_a_line_each(specdec):
    code, out, err = specdec("help")
    assert (code, err) == (0, "")
    sections = {part.partition(":\n")[0]: part.splitlines()[1:] for part in out.split("\n\n")}
    topics = [line.split(None, 1) for line in sections.pop("Topics")]
    assert [topic[0] for topic in topics] == sorted(path.stem for path in DOCS.glob("*.md"))
    assert all(topic[1].endswith(".") for topic in topics) and max(map(len, out.splitlines())) <= 80
    commands = [line.split()[0] for name in PANELS for line in sections[name]]
    assert commands == [name for rows in PANELS.values() for names in rows.values() for name in names.split()]


def test_a_pipe_gets_the_document_as_it_is(specdec):
    assert specdec("help", "how-it-works") == (0, (DOCS / "how-it-works.md").read_text("utf-8"), "")


@pytest.mark.slow
def test_a_long_document_goes_through_the_users_pager(tmp_path):
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "pager $1, LESS $LESS"\ncat\n')
    pager.chmod(0o755)
    out = on_a_terminal("help", "bench", PAGER=f"{pager} -x")
    assert out.startswith("pager -x, LESS -R") and "\x1b[1" in out and "```" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "environment", "plain"),
    [
        (500, {"PAGER": "false"}, ()),  # it fits the screen
        (24, {"PAGER": "false", "TERM": "dumb"}, ()),
        (24, {"PAGER": "false"}, ("--plain",)),
    ],
)
def test_without_a_pager_the_document_is_printed(rows, environment, plain):
    out = on_a_terminal("help", "how-it-works", *plain, rows=rows, **environment)
    assert "How it works" in out and "How K is chosen" in out and "**" not in out
    assert ("\x1b" in out) == (not plain and environment.get("TERM") != "dumb")


def every_command(command=None, path=()):
    """(words, command) of each."""
    command = command or typer.main.get_command(app)
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, (*path, name))


HELPS = {" ".join(path): (path, command) for path, command in every_command()}


@pytest.mark.parametrize("name", HELPS)
def test_both_spellings_print_the_same_short_enough_to_be_read_with_the_network_last(specdec, name):
    """`run -h` had 32 options, and `help run` 52."""
    short = specdec(*HELPS[name][0], "-h")
    assert short == specdec(*HELPS[name][0], "--help") and short[0] == 0
    lines = short[1].splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 80 and len(re.findall(r"^ +-.*", short[1], re.M)) <= 20
    headings = [line for line in lines if re.fullmatch(r"\w+:", line)]
    assert "Network:" not in headings or headings[-1] == "Network:"
    assert not HELPS[name][1].params or not name or lines[-1].startswith(f"specdec help {name}: every option")


@pytest.mark.parametrize("name", list(HELPS)[1:])
def test_help_of_a_command_has_every_option_its_default_its_variable_and_the_examples(specdec, name):
    path, command = HELPS[name]
    out = specdec("help", *path)[1]
    whole, document = out.partition("## Every option"), DOCS / f"{name}.md"
    assert not document.exists() or out.startswith(document.read_text("utf-8"))
    assert len(re.findall(r"^ +-.*", whole[2] or whole[0], re.M)) <= 35
    for row in (row_of(command.name, parameter.name) for parameter in command.params):
        if row.setting:
            assert f"      {row.spelled}" not in out
            continue
        assert re.search(rf"^ +{re.escape(row.spelled)}(  +\w.*)?$", out, re.M)
        assert (row.default in out and f"[env: {row.variable}]" in out) or not row.variable
    assert all(f"  {example}\n" in out for example in (command.epilog or "").splitlines())


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_every_option_in_a_line_of_a_document_is_one_of_its_command(path):
    """`specdec audit --schema`, which audit never had."""
    blocks = "".join(path.read_text("utf-8").split("```")[1::2])
    for line in re.findall(r"^specdec ([^#|\n]+)", blocks, re.M):
        first, second, *_ = *line.split(), ""
        _, command = HELPS.get(f"{first} {second}") or HELPS[first]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
        assert set(re.findall(r"(?<= )--[a-z][a-z-]*", line)) <= known, line


@pytest.mark.parametrize("columns", [60, 120])
def test_no_width_cuts_a_word(specdec, monkeypatch, columns):
    words = specdec("run", "-h")[1].split()
    monkeypatch.setenv("COLUMNS", str(columns))
    out = specdec("run", "-h")[1]
    assert out.split() == words and max(map(len, out.splitlines())) <= columns


@pytest.mark.slow
def test_headings_are_bold_on_a_terminal_alone():
    assert "\x1b[1mSampling:\x1b[0m" in on_a_terminal("run", "-h")
    assert "\x1b" not in on_a_terminal("run", "-h", "--plain") + on_a_terminal("run", "-h", TERM="dumb")
