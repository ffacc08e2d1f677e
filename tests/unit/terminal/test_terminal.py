"""Terminal safety: no text acts on it; documents and answers rendered, filtered, folded at a readable width."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_cli.apps.chat.screen import ChatScreen
from specdec_cli.terminal.markdown import WIDEST, is_markdown, markdown, print_document
from specdec_cli.terminal.terminal import LONGEST_STRING, TerminalFilter, encodable, make_console, safe, visible

FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
HOSTILE = st.text(
    st.one_of(
        st.sampled_from(
            "\x1b\x1b\x1b[]P_^XkM(#%;?0127mhJ\\\x07\x9b\x9d\x9c\x90\r\n\t\x18\u202e\u200b\u200d\ufe0f\ud800ab é"
        ),
        st.characters(),
    ),
    max_size=60,
)
CUTS = st.lists(st.integers(0, 60), max_size=8)


def fed(text: str, cuts: list[int]) -> str:
    """`text` through one filter, split at `cuts`."""
    terminal_filter = TerminalFilter()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[first:last] for first, last in pairwise(places)]
    return "".join(map(terminal_filter.feed, parts)) + terminal_filter.finish()


@settings(max_examples=40, deadline=None)
@given(HOSTILE, CUTS)
def test_no_control_character_passes_however_the_text_is_split(text: str, cuts: list[int]) -> None:
    assert FORBIDDEN.search(fed(text, cuts)) is None


@settings(max_examples=40, deadline=None)
@given(HOSTILE, CUTS)
def test_the_output_does_not_depend_on_the_split(text: str, cuts: list[int]) -> None:
    assert fed(text, cuts) == fed(text, []) == fed(text, list(range(60)))


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs")), max_size=60), CUTS)
def test_letters_marks_numbers_and_symbols_pass_unchanged(text: str, cuts: list[int]) -> None:
    assert fed(text, cuts) == text


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\x1b[2Jb", "ab"),
        ("a\x1b[38;5;1mb", "ab"),
        ("a\x9b2Jb", "ab"),
        ("a\x1b]52;c;aGk=\x07b", "ab"),
        ("a\x1b]0;title\x1b\\b", "ab"),
        ("a\x9d0;title\x9cb", "ab"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x1b_G1\x1b\\b", "ab"),
        ("a\x1bktitle\x1b\\b", "ab"),
        ("a\x1b(0b", "ab"),
        ("a\x1b#8b", "ab"),
        ("a\x1bcb", "ab"),
        ("a\r\nb\rc", "a\nbc"),
        ("a\x08\x08b\x7f\x00", "ab"),
        ("user\u202etxt.exe\u2066", "usertxt.exe"),
        ("pass\u200bword\ufeff\U000e0041", "password"),
        ("a\u2028b", "a\nb"),
        ("a\ud83db", "a\ufffdb"),
        ("a\x1b\nb", "a\nb"),
        ("a\x1b\x1b[2Jb", "ab"),
    ],
)
def test_a_whole_sequence_is_removed_and_nothing_else(hostile: str, shown: str) -> None:
    assert safe(hostile) == shown


def test_an_unterminated_control_string_hides_no_more_than_its_introducer() -> None:
    assert safe("a\x1b]0;oops\nthe answer") == "a0;oops\nthe answer"
    assert safe("a\x1b]0;the answer") == "a0;the answer"
    long = "x" * 3 * LONGEST_STRING
    assert safe("a\x1b]" + long) == "a" + long


def test_a_stray_introducer_holds_back_a_bounded_part_of_the_stream() -> None:
    terminal_filter = TerminalFilter()
    shown = terminal_filter.feed("\x1b]" + "y" * LONGEST_STRING)
    assert shown == ""
    assert terminal_filter.feed("y") == "y" * (LONGEST_STRING + 1)


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (" the", "␣the"),
        ("\n\t", "↵⇥"),
        ("\x1b[0m", "␛[0m"),
        ("\r\x7f", "␍␡"),
        ("\x9b", "\\x9b"),
        ("\u202e", "\\u202e"),
        ("\u200d", "\\u200d"),
        ("\ud83d", "\ufffd"),
        ("\u0301", "◌\u0301"),
        ("日本", "日本"),
        ("", ""),
    ],
)
def test_a_piece_shows_what_cannot_be_seen(piece: str, shown: str) -> None:
    assert visible(piece) == shown


@given(HOSTILE)
def test_a_visible_piece_holds_no_control_character_and_no_line_break(piece: str) -> None:
    assert FORBIDDEN.search(visible(piece)) is None
    assert len(visible(piece).splitlines()) <= 1
    assert "\t" not in visible(piece)


def test_what_a_stream_cannot_encode_is_replaced_rather_than_raised() -> None:
    ascii_stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert encodable("é✓a", ascii_stream) == "??a"
    assert encodable("\ud800✓", io.StringIO()) == "?✓"


def test_markup_and_emoji_names_are_shown_literally() -> None:
    stream = io.StringIO()
    make_console(stream, plain=True).print("[link=http://x]a[/link] [red]b[/red] :smile: 'c' 12")
    assert stream.getvalue() == "[link=http://x]a[/link] [red]b[/red] :smile: 'c' 12\n"


FOUL = "# a\x1b]0;title\x07b\n\n`c\x9b2Jd` &#27;[2J &#x202e;\n"


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
    out = shown(FOUL, stream())
    assert "ab" in out and "cd" in out and not {"\x1b", "\x9b", "\x07", "\u202e"} & set(out)


def test_tables_code_and_headings_are_rendered_from_the_left_edge():
    text = "# Title\n\nSome *words*.\n\n```sh\nspecdec bench   # two minutes\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    lines = [line.rstrip() for line in shown(text, Terminal()).splitlines()]
    assert [line for line in lines if line] == [
        *("Title", "Some words.", "specdec bench   # two minutes", " a  b", " ────", " 1  2"),
    ]


def test_a_table_shows_whole_words_where_there_is_little_room(monkeypatch):
    """Addresses and names of variables ended in an ellipsis, and nobody could type them."""
    monkeypatch.setenv("COLUMNS", "30")
    out = shown("| a | b |\n|---|---|\n| SPECDEC_CACHE_BYTES | https://arxiv.org/abs/2401.10774 |\n", Terminal())
    assert "…" not in out and "/2401.10774" in out.replace("\n", "").replace(" ", "")


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
