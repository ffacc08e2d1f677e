"""What a chat shows: thinking told apart, one line a turn, Markdown, and nothing that acts on the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from fakes.ui_script import PREFILL, ROUNDS, START, Terminal, drafted, finish
from specdec_cli.apps.chat.screen import ChatScreen, ThinkingRows, ThinkingWriter, copied_here
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.models.text import Thinking
from specdec_cli.terminal.look import Look

TAGS = Thinking("<think>", "</think>")
REPLY = ["<thi", "nk>\nLet me ", "see: one\ntwo.\n", "</think>", "\n\nThe answer", " is 2."]
HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md&#x202e;&#27;[31m [link=x]e[/link] [f](http://g)"


@pytest.fixture(autouse=True)
def _an_able_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def terminal():
    made = Terminal(60, 24)
    yield made
    made.close()


def replied(terminal, parts, hidden=False, panel=True, reason="stop", **screen):
    made = ChatScreen(terminal.out, terminal.err, Look(**screen))
    with made.reply("demo", TAGS, hidden, panel) as show:
        for event in [START, PREFILL, *[replace(ROUNDS[0], text=part) for part in parts], finish(reason)]:
            show(event)
    return terminal.lines()


@pytest.mark.parametrize("panel", [True, False])
def test_a_reply_leaves_its_answer_and_one_line_and_no_panel(terminal, panel):
    lines = replied(terminal, REPLY, panel=panel)
    assert lines[:4] == ["┊ Let me see: one", "┊ two.", "", "The answer is 2."]
    assert len(lines) == 5 and "in 5 passes" in lines[4] and "╭" not in "".join(lines)


def test_hostile_text_of_a_model_does_not_reach_the_terminal(terminal):
    for hidden in (False, True):
        for panel in (False, True):
            replied(terminal, ["<think>", HOSTILE, "</think>", HOSTILE], hidden, panel)
    assert b"title" not in terminal.written and not re.search("\x1b\\[31m(?!✗)".encode(), terminal.written)
    assert b"\x1b[2J" not in terminal.written and "\u202e" not in terminal.written.decode()


def test_quiet_says_errors_and_what_was_asked_for_alone():
    out, err = io.StringIO(), io.StringIO()
    screen = ChatScreen(out, err, Look(quiet=True))
    screen.notice("done")
    with screen.reply("demo", None, False, True) as show:
        for event in (START, PREFILL, *ROUNDS, finish()):
            show(event)
    assert err.getvalue() == ""
    screen.error(UsageError("what", "next"))
    screen.rows([("a", "b")])
    assert err.getvalue().startswith("error: what\nhint: next\na  b")


def test_what_is_copied_is_filtered_and_bounded(terminal):
    screen = ChatScreen(terminal.out, terminal.err)
    assert screen.copy("a\x1b[2Jb") == "2 characters sent to the terminal's clipboard"
    terminal.settle()
    assert b"\x1b]52;c;YWI=\x07" in terminal.written
    with pytest.raises(
        SpecdecError, match="80000 bytes cannot be copied: no clipboard command, and a terminal takes 74994"
    ):
        screen.copy("x" * 80_000)
    with pytest.raises(SpecdecError, match="1 bytes cannot be copied"):
        ChatScreen(terminal.out, terminal.err, Look(plain=True)).copy("a")


def coloured(terminal, **screen):
    """What a reply with a draft writes: thinking, then the answer."""
    made = ChatScreen(terminal.out, terminal.err, Look(**screen))
    with made.reply("demo", TAGS, False, True) as show:
        rounds = [
            drafted(0, [], 0, "<think>"),
            drafted(1, ["Hm"], 1, "</think>"),
            drafted(2, ["Yes", ","], 1, " it is."),
        ]
        for event in [START, PREFILL, *rounds, finish()]:
            show(event)
    terminal.settle()
    return terminal.written


def test_the_answer_is_coloured_as_in_a_run_and_the_thinking_is_not(terminal):
    written = coloured(terminal)
    assert b"\x1b[38;5;29mYes\x1b[0m\x1b[1;38;5;98m it is.\x1b[0m" in written
    assert "\x1b[2m┊ Hm\x1b[0m".encode() in written
    assert terminal.lines()[:3] == ["┊ Hm", "", "Yes it is."]


@pytest.mark.slow
def test_a_local_clipboard_is_preferred_to_the_terminals(tmp_path):
    command = tmp_path / "pbcopy"
    command.write_text(f"#!/bin/sh\ncat > {tmp_path}/copied\n")
    command.chmod(0o755)
    here = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert copied_here("é日", here, "darwin") and (tmp_path / "copied").read_text() == "é日"
    assert not copied_here("a", here | {"SSH_CONNECTION": "1"}, "darwin")
    assert not copied_here("a", here, "linux")
    command.write_text("#!/bin/sh\nexit 1\n")
    assert not copied_here("a", here, "darwin")


def rows_of(parts, hidden, width=60):
    rows = ThinkingRows(TAGS, hidden)
    found = [row for part in parts for row in rows.feed(part, width)] + rows.finish(width)
    assert all((row.style == "dim") == row.plain.startswith("┊ ") for row in found)
    return "".join(f"{row.plain}\n" for row in found)


SHOWN = {
    "shown": (REPLY, False, "┊ Let me see: one\n┊ two.\n\nThe answer is 2.\n"),
    "hidden": (REPLY, True, "┊ thought for 5 words\n\nThe answer is 2.\n"),
    "unfinished": (["<think>hm, w"], False, "┊ hm, w\n\n"),
    "unfinished and hidden": (["<think>hm, w"], True, "┊ thought for 2 words\n\n"),
    "an answer that names a tag": (["Yes, <think>", "\nit is."], True, "Yes, <think>\nit is.\n"),
}


@pytest.mark.parametrize("reply", SHOWN)
def test_thinking_is_dim_and_marked_or_one_row_without_its_tags(reply):
    parts, hidden, rows = SHOWN[reply]
    assert rows_of(parts, hidden) == rows


def test_thinking_wraps_within_its_mark():
    rows = rows_of(["<think>" + "word " * 20 + "</think>yes"], hidden=False, width=24).split("\n")
    assert all(len(row) <= 24 for row in rows) and sum(row.startswith("┊ word") for row in rows) >= 5


@pytest.mark.parametrize(("hidden", "shown"), [(False, "┊ see: one two"), (True, "┊ thinking… 5 words")])
def test_the_growing_row_of_thinking_shows_it_or_its_length(hidden, shown):
    rows = ThinkingRows(TAGS, hidden)
    rows.feed("<think>Let me\nsee: one two", 60)
    assert rows.row.plain == shown


def written(parts, out, hidden):
    writer = ThinkingWriter(out, TAGS, hidden, styled=True)
    for part in parts:
        writer.write(part)
    writer.end()


def test_a_pipe_gets_the_models_own_words_or_the_answer_alone():
    shown, hidden = io.StringIO(), io.StringIO()
    written(REPLY, shown, False)
    written(REPLY, hidden, True)
    assert (shown.getvalue(), hidden.getvalue()) == ("".join(REPLY) + "\n", "The answer is 2.\n")
