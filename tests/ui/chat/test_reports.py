"""The line after a reply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.ui_script import PREFILL, START, finish
from specdec_cli.ui.chat.reports import turn_lines


@pytest.fixture(autouse=True)
def _an_able_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("width", [30, 60, 80, 120, 140])
def test_the_line_behind_a_reply_is_one_row_and_leaves_out_its_ends_first(width):
    lines = turn_lines(START, PREFILL, finish(), width)
    assert len(lines) == 1 and lines[0].cell_len <= max(width, len("14 tokens in 5 target passes"))
    assert ("read 1234 of" in lines[0].plain) == (width == 140)


def test_a_reply_that_was_cut_says_so():
    full = replace(START, context_limit=1334)
    assert turn_lines(START, PREFILL, finish("length"), 80)[1].plain == "stopped at 100 tokens: /set max-tokens N"
    assert turn_lines(full, PREFILL, finish("length"), 80)[1].plain == "the context of 1334 tokens is full"
    assert "keeps the text above" in turn_lines(START, PREFILL, finish("interrupted"), 80)[1].plain
