"""Documents and answers on a terminal: rendered, filtered, and folded at a readable width."""

import io

import pytest

from specdec_cli.ui.markdown import WIDEST, markdown, print_document
from specdec_cli.ui.terminal import make_console

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
