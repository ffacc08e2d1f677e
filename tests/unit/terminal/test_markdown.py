"""Documents and answers on a terminal: rendered, filtered, and folded at a readable width."""

import io

import pytest

from specdec_cli.apps.chat.screen import ChatScreen
from specdec_cli.terminal.markdown import WIDEST, is_markdown, markdown, print_document
from specdec_cli.terminal.terminal import make_console

HOSTILE = "# a\x1b]0;title\x07b\n\n`c\x9b2Jd` &#27;[2J &#x202e;\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def shown(text, stream):
    print_document(stream, text, plain=True)
    return stream.getvalue()


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_escape_sequences_of_a_document_reach_neither_terminal_nor_pipe(stream):
    out = shown(HOSTILE, stream())
    assert "ab" in out and "cd" in out and not {"\x1b", "\x9b", "\x07", "\u202e"} & set(out)


def test_tables_code_and_headings_are_rendered_from_the_left_edge():
    text = "# Title\n\nSome *words*.\n\n```sh\nspecdec bench   # two minutes\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    lines = [line.rstrip() for line in shown(text, Terminal()).splitlines()]
    assert [line for line in lines if line] == [
        *("Title", "Some words.", "specdec bench   # two minutes", " a  b", " ────", " 1  2"),
    ]


def test_a_wide_terminal_does_not_make_long_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, shown("word " * 200, Terminal()).splitlines())) == WIDEST


def test_an_answer_keeps_its_lines_and_shows_where_its_links_lead():
    out = io.StringIO()
    console = make_console(out, plain=True)
    console.print(markdown("one\ntwo [f](http://g)", console, keeps_lines=True))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["one", "two f (http://g)"]


CODE = "class A:\n    def __init__(self):\n        # the *first* one\n        self.a = 2 * 3 * 4\n"
MARKDOWN = ["```py\nx\n```", "Two:\n\n- a\n- b", "1. one\n2. two", "## Why\nbecause", "# Why\n\nbecause", "# Why"]


@pytest.mark.parametrize("text", MARKDOWN)
def test_a_fence_a_list_or_a_heading_makes_a_text_markdown(text):
    assert is_markdown(text)


@pytest.mark.parametrize("text", [CODE, "# a comment\nx = 1\n", "a * b * c", "-1 and -2", "__all__ = []", "3.5 is"])
def test_a_text_without_any_is_none(text):
    assert not is_markdown(text)


def test_an_answer_that_is_no_markdown_is_shown_as_it_is():
    """`/show last`: `__init__(self)` became `init(self)`, and the indentation was gone."""
    err = io.StringIO()
    ChatScreen(io.StringIO(), err).markdown(CODE)
    assert err.getvalue().rstrip("\n") == CODE.rstrip("\n")
    ChatScreen(io.StringIO(), err).markdown("Use `a`:\n\n- **one**")
    assert "**" not in err.getvalue()
