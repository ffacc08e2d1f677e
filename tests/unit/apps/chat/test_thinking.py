"""Thinking in the rows of an answer: marked, or folded into one row."""

from __future__ import annotations

import io

import pytest

from specdec_cli.apps.chat.thinking import ThinkingRows, ThinkingWriter
from specdec_cli.models.text import Thinking

TAGS = Thinking("<think>", "</think>")


REPLY = ["<thi", "nk>\nLet me ", "see: one\ntwo.\n", "</think>", "\n\nThe answer", " is 2."]


@pytest.fixture(autouse=True)
def _an_able_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def rows_of(parts, hidden, width=60):
    rows = ThinkingRows(TAGS, hidden)
    found = [row for part in parts for row in rows.feed(part, width)] + rows.finish(width)
    assert all((row.style == "dim") == row.plain.startswith("┊ ") for row in found)
    return "".join(f"{row.plain}\n" for row in found)


def test_shown_thinking_is_dim_and_marked_and_without_its_tags():
    assert rows_of(REPLY, hidden=False) == "┊ Let me see: one\n┊ two.\n\nThe answer is 2.\n"


def test_hidden_thinking_is_one_row():
    assert rows_of(REPLY, hidden=True) == "┊ thought for 5 words\n\nThe answer is 2.\n"


def test_thinking_wraps_within_its_mark():
    rows = rows_of(["<think>" + "word " * 20 + "</think>yes"], hidden=False, width=24).split("\n")
    assert all(len(row) <= 24 for row in rows) and sum(row.startswith("┊ word") for row in rows) >= 5


def test_the_growing_row_of_thinking_shows_it_or_its_length():
    for hidden, expected in ((False, "┊ see: one two"), (True, "┊ thinking… 5 words")):
        rows = ThinkingRows(TAGS, hidden)
        rows.feed("<think>Let me\nsee: one two", 60)
        assert rows.row.plain == expected or hidden
        assert rows.row.plain.startswith("┊ ") and (not hidden or rows.row.plain == expected)


def test_an_unfinished_thought_is_closed_and_an_answer_without_thinking_is_as_ever():
    assert rows_of(["<think>hm, w"], hidden=False) == "┊ hm, w\n\n"
    assert rows_of(["<think>hm, w"], hidden=True) == "┊ thought for 2 words\n\n"
    assert rows_of(["Yes, <think>", "\nit is."], hidden=True) == "Yes, <think>\nit is.\n"


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
