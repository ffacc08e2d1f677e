"""What a chat shows: thinking told apart, one line a turn, Markdown, and nothing that acts on the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from fakes.ui_script import PREFILL, ROUNDS, START, Terminal, drafted, finish
from specdec_cli.chat.screen import Markdown, Notice, Quote, Rows
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.models.text import Thinking
from specdec_cli.ui.chat.screen import ChatScreen, copied_here, fenced, markdown, toolbar, turn_lines
from specdec_cli.ui.display import TraceDisplay
from specdec_cli.ui.terminal import make_console

TAGS = Thinking("<think>", "</think>")


REPLY = ["<thi", "nk>\nLet me ", "see: one\ntwo.\n", "</think>", "\n\nThe answer", " is 2."]


HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md&#x202e;&#27;[31m [link=x]e[/link] [f](http://g)"


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


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
    made = ChatScreen(terminal.out, terminal.err, **screen)
    with made.reply("demo", TAGS, hidden, panel) as display:
        for event in [START, PREFILL, *[replace(ROUNDS[0], text=part) for part in parts], finish(reason)]:
            display.handle(event)
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


def test_markdown_is_drawn_and_holds_nothing_that_acts(terminal):
    screen = ChatScreen(terminal.out, terminal.err)
    screen.show(Markdown(f"# Title\n\n* one\n* `two`\n\n{HOSTILE}\n\n```python\nx = 1\n```\n"))
    shown = "\n".join(terminal.lines())
    assert "Title" in shown and "• one" in shown and "x = 1" in shown and "http://g" in shown
    text = terminal.written.decode()
    assert "\x1b]" not in text and "\u202e" not in text and "\x1b[2J" not in text and "\x9b" not in text


def test_names_messages_and_tables_are_filtered(terminal):
    screen = ChatScreen(terminal.out, terminal.err)
    screen.show(Notice(HOSTILE))
    screen.show(Quote(HOSTILE))
    screen.show(Rows(((HOSTILE, HOSTILE),)))
    screen.error(UsageError(HOSTILE, HOSTILE))
    screen.show(Notice(HOSTILE))
    terminal.settle()
    text = terminal.written.decode()
    assert "title" not in text and "\x1b[2J" not in text and "\x9b" not in text
    assert CONTROLS.search(toolbar([HOSTILE, "b\nc"], 90)) is None


def test_quiet_says_errors_and_what_was_asked_for_alone():
    out, err = io.StringIO(), io.StringIO()
    screen = ChatScreen(out, err, quiet=True)
    screen.show(Notice("done"))
    screen.show(Notice("who"))
    screen.turn(START, PREFILL, finish())
    assert err.getvalue() == ""
    screen.error(UsageError("what", "next"))
    screen.show(Rows((("a", "b"),)))
    assert err.getvalue().startswith("error: what\nhint: next\na  b")


def test_json_gives_events_and_failures_on_stdout(tmp_path):
    out, err, path = io.StringIO(), io.StringIO(), tmp_path / "trace.jsonl"
    trace = TraceDisplay(path)
    screen = ChatScreen(out, err, json=True, trace=trace)
    with screen.reply("demo", None, False, True) as display:
        for event in (START, PREFILL, *ROUNDS, finish()):
            display.handle(event)
    screen.error(UsageError("what", "next"))
    trace.close()
    assert out.getvalue() == path.read_text()
    assert [line.split('"')[3] for line in out.getvalue().splitlines()] == [
        "start",
        "prefill",
        *["round"] * 5,
        "finish",
        "error",
    ]


def test_what_is_copied_is_filtered_and_bounded(terminal):
    screen = ChatScreen(terminal.out, terminal.err)
    assert screen.copy("a\x1b[2Jb") == "2 characters handed to the terminal's clipboard"
    terminal.settle()
    assert b"\x1b]52;c;YWI=\x07" in terminal.written
    with pytest.raises(SpecdecError, match="80000 bytes and terminals copy 74994"):
        screen.copy("x" * 80_000)
    with pytest.raises(SpecdecError, match="no terminal here"):
        ChatScreen(terminal.out, terminal.err, plain=True).copy("a")


def coloured(terminal, **screen):
    """What a reply with a draft writes: thinking, then the answer."""
    made = ChatScreen(terminal.out, terminal.err, **screen)
    with made.reply("demo", TAGS, False, True) as display:
        rounds = [
            drafted(0, [], 0, "<think>"),
            drafted(1, ["Hm"], 1, "</think>"),
            drafted(2, ["Yes", ","], 1, " it is."),
        ]
        for event in [START, PREFILL, *rounds, finish()]:
            display.handle(event)
    terminal.settle()
    return terminal.written


def test_the_answer_is_coloured_as_in_a_run_and_the_thinking_is_not(terminal):
    written = coloured(terminal)
    assert b"\x1b[32mYes\x1b[0m\x1b[1;38;5;172m it is.\x1b[0m" in written
    assert "\x1b[2m┊ Hm\x1b[22m".encode() in written
    assert terminal.lines()[:3] == ["┊ Hm", "", "Yes it is."]


def test_a_chat_without_colours_and_with_a_small_panel(terminal):
    written = coloured(terminal, colour_answer=False, small_panel=True)
    assert b"\x1b[32mYes" not in written and "╭".encode() not in written
    assert b"\r\nreading the prompt, " in written


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


@pytest.mark.parametrize("width", [30, 80, 120])
def test_the_line_behind_a_reply_is_one_row_and_leaves_out_its_ends_first(width):
    lines = turn_lines(START, PREFILL, finish(), width)
    assert len(lines) == 1 and lines[0].cell_len <= max(width, len("14 tokens in 5 passes"))
    assert ("read 1234 of" in lines[0].plain) == (width >= 120)
    verbose = turn_lines(START, PREFILL, finish(), width, verbose=True)
    assert verbose[1].plain.startswith("a round costs")


def test_a_reply_that_was_cut_says_so():
    full = replace(START, context_limit=1334)
    assert turn_lines(START, PREFILL, finish("length"), 80)[1].plain == "stopped at 100 tokens: /set max-tokens N"
    assert turn_lines(full, PREFILL, finish("length"), 80)[1].plain == "the context of 1334 tokens is full"
    looped = turn_lines(START, PREFILL, finish("repetition"), 80)[1].plain
    assert looped == "stopped: the answer had become a loop; /set stop-repetition 0 goes on"
    assert "keeps the text above" in turn_lines(START, PREFILL, finish("interrupted"), 80)[1].plain


def shown(text):
    console = make_console(io.StringIO(), plain=True)
    console.width = 60
    console.print(markdown(text, console))
    return [line.strip() and line.rstrip() for line in console.file.getvalue().splitlines()]


def test_code_without_a_fence_keeps_its_lines():
    """The bug: /show last folded the demo pair's answers, which are code and nothing else, into paragraphs."""
    code = "def f(a):\n    # twice\n    return 2 * a\n\n\nclass __B__:\n    x = 1\n\n    def g(self):\n        pass"
    lines = [line.strip() for line in shown(code) if line]
    assert lines == [line.strip() for line in code.splitlines() if line]


@pytest.mark.parametrize(
    "text",
    ["- one\n  more\n- two\n\n    still two", "Text with **bold**.", "```\na\n  b\n```", "1. one\n   more"],
)
def test_markdown_stays_markdown(text):
    assert fenced(text) == text
