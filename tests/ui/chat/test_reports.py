"""The line after a reply."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from fakes.ui_script import PREFILL, START, finish
from specdec_cli.ui.chat.screen import fenced, markdown, turn_lines
from specdec_cli.ui.terminal import make_console


@pytest.fixture(autouse=True)
def _an_able_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("width", [30, 60, 80, 120, 140])
def test_the_line_behind_a_reply_is_one_row_and_leaves_out_its_ends_first(width):
    lines = turn_lines(START, PREFILL, finish(), width)
    assert len(lines) == 1 and lines[0].cell_len <= max(width, len("14 tokens in 5 passes"))
    assert ("read 1234 of" in lines[0].plain) == (width >= 120)


def test_the_line_says_what_drafting_gained_and_the_next_one_on_request_what_a_round_costs():
    lines = [line.plain for line in turn_lines(START, PREFILL, finish(), 80, verbose=True)]
    assert lines[0] == "14 tokens in 5 passes · 283 tok/s · 3.39× faster (3.08–3.73)"
    assert lines[1].startswith("a round costs 1.0 plain steps")
    assert len(turn_lines(START, PREFILL, finish(), 80)) == 1


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


@pytest.mark.parametrize("text", ["Roses are red\nviolets are blue", "import os\nimport sys", "x = 1\ny = 2"])
def test_lines_stay_lines(text):
    assert [line.strip() for line in shown(text) if line] == text.splitlines()


@pytest.mark.parametrize(
    "text",
    ["- one\n  more\n- two\n\n    still two", "Text with **bold**.", "```\na\n  b\n```", "1. one\n   more"],
)
def test_markdown_stays_markdown(text):
    assert fenced(text) == text
