"""The live region: frames overwrite one another in place, each in one write; and the answer's rows, final when full."""

from __future__ import annotations

import io
from itertools import pairwise

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Span, Text

from fakes.ui_script import ROUNDS
from specdec_cli.terminal.panel.answer import GUESSED, OWN, AnswerRows, AnswerText, folds
from specdec_cli.terminal.panel.region import LiveRegion
from specdec_cli.terminal.terminal import make_console


class Writes(io.RawIOBase):
    """A terminal's descriptor that counts what each write gives it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.parts.append(bytes(data))
        return len(self.parts[-1])


class Recorded:
    """A region on such a terminal of `columns` × `rows` cells."""

    def __init__(self, columns: int, rows: int) -> None:
        self.raw = Writes()
        stream = io.TextIOWrapper(io.BufferedWriter(self.raw), "utf-8", line_buffering=True)
        self.columns, self.rows = columns, rows
        console = make_console(stream, plain=False)
        self.region = LiveRegion(console, stream, lambda: (self.columns, self.rows))

    def frames(self) -> list[bytes]:
        """What was written since the last call, as the terminal gets it."""
        parts, self.raw.parts = self.raw.parts, []
        return [part.replace(b"\n", b"\r\n") for part in parts]


def rows(*words: str) -> list[Text]:
    return [Text(word) for word in words]


def blanked(screen: pyte.Screen, frame: bytes) -> list[tuple[int, str]]:
    """The rows (place, text) that were empty at some moment of this frame, and held text before and after it.

    The lowest row of the screen is left out: what scrolls in there is empty until it is written.
    """
    stream = pyte.ByteStream(screen)
    before = [row.rstrip() for row in screen.display]
    empty: dict[int, str] = {}
    for place in range(len(frame)):
        stream.feed(frame[place : place + 1])
        for row, text in enumerate(before[:-1]):
            if text and not screen.display[row].strip():
                empty[row] = text
    return [(row, text) for row, text in sorted(empty.items()) if screen.display[row].strip()]


FRAMES = [
    ("", ["def f", "╭───────╮", "│ one   │", "╰───────╯"]),
    ("def f(x):\n", ["    ret", "╭───────╮", "│ two   │", "╰───────╯"]),
    ("\x1b[32m    return\x1b[0m x\n        done\n", ["e", "╭───╮", "│ 3 │", "╰───╯"]),
    ("", ["end", "one line"]),
    ("", ["end.", "╭───────╮", "│ four  │", "╰───────╯"]),
]


@pytest.mark.parametrize("height", [pytest.param(24, marks=pytest.mark.slow), 6])
def test_no_moment_of_a_frame_shows_an_empty_row_where_there_was_text(height: int) -> None:
    terminal, screen = Recorded(20, height), pyte.Screen(20, height)
    for above, frame in FRAMES:
        terminal.region.draw(above, rows(*frame))
        (written,) = terminal.frames()
        assert blanked(screen, written) == []
    terminal.region.release("the end\n", rows("╭───╮", "╰───╯"))
    (written,) = terminal.frames()
    assert blanked(screen, written) == []
    shown = [row.rstrip() for row in screen.display if row.strip()]
    assert shown[-3:] == ["the end", "╭───╮", "╰───╯"] and not screen.cursor.hidden
    if height == 24:
        assert shown == ["def f(x):", "    return x", "        done", *shown[-3:]]


def test_erasing_a_frame_before_drawing_it_would_show_empty_rows() -> None:
    """The control of the test above: this is how frames were drawn, and seen torn."""
    screen = pyte.Screen(20, 24)
    terminal = Recorded(20, 24)
    terminal.region.draw("", rows("a", "b"))
    (first,) = terminal.frames()
    assert blanked(screen, first) == []
    assert blanked(screen, b"\r\x1b[2K\x1b[A\x1b[2Ka\r\nb\r") == [(0, "a"), (1, "b")]


def test_a_frame_of_any_length_is_one_write() -> None:
    terminal = Recorded(400, 100)
    terminal.region.draw("long\n" * 40, [Text("x" * 400, "bold red")] * 50)
    (written,) = terminal.frames()
    assert len(written) > 3 * io.DEFAULT_BUFFER_SIZE // 2


def test_a_shorter_row_leaves_nothing_of_the_row_below_it() -> None:
    terminal, screen = Recorded(20, 10), pyte.Screen(20, 10)
    stream = pyte.ByteStream(screen)
    terminal.region.draw("", rows("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"))
    terminal.region.draw("c\n", rows("d", "e"))
    for written in terminal.frames():
        stream.feed(written)
    assert [row.rstrip() for row in screen.display[:3]] == ["c", "d", "e"]


def test_where_erased_ends_are_folded_a_row_that_becomes_shorter_is_erased_as_a_whole(monkeypatch) -> None:
    """tmux: the answer's row, over one of the panel's, would be as wide as that after a resize."""
    monkeypatch.setenv("TMUX", "/tmp/tmux")
    terminal = Recorded(20, 10)
    terminal.region.draw("", rows("short", "panel panel"))
    terminal.region.draw("short\n", rows("row", "panel"))
    first, second = terminal.frames()
    assert b"\x1b[2K" not in first and second.count(b"\x1b[2K") == 1
    assert b"\x1b[2Krow" in second and b"panel\x1b[K" in second


def test_a_row_as_wide_as_the_terminal_keeps_its_last_cell() -> None:
    """Erasing the rest of a full row would erase its last cell: the cursor waits on it."""
    terminal, screen = Recorded(10, 10), pyte.Screen(10, 10)
    terminal.region.draw("0123456789\n", rows("abcdefghij", "klmnopqrst"))
    pyte.ByteStream(screen).feed(b"".join(terminal.frames()))
    assert screen.display[:3] == ["0123456789", "abcdefghij", "klmnopqrst"]


TEXT = st.text(st.sampled_from("ab cd  日本\n\té́👍x"), max_size=80)
WIDTHS = st.integers(8, 30)


def grown(spans: list[tuple[str | None, str]], width: int) -> list[Text]:
    """All rows of an answer that arrives in spans."""
    rows = AnswerRows()
    return [row for style, text in spans for row in rows.feed(text, width, style)] + rows.finish(width)


def plain(parts: list[str], width: int) -> list[str]:
    return [row.plain for row in grown([(None, part) for part in parts], width)]


@pytest.mark.parametrize(
    ("line", "width", "full", "rest"),
    [
        ("the quick brown fox jumps", 10, ["the quick", "brown fox"], "jumps"),
        ("a incomprehensibly", 6, ["a", "incomp", "rehens"], "ibly"),
        ("abcdef ", 6, [], "abcdef "),
        ("abcdef g", 6, ["abcdef"], "g"),
        ("        word", 10, ["        wo"], "rd"),
        ("日本語日本語", 5, ["日本", "語日"], "本語"),
    ],
)
def test_rows_are_cut_between_words_where_that_is_possible(line: str, width: int, full: list[str], rest: str) -> None:
    rows, place = folds(line, 0, len(line), width)
    assert ([line[start:end] for start, end in rows], line[place:]) == (full, rest)


def test_rows_of_an_answer_are_final_as_soon_as_they_are_full() -> None:
    rows = AnswerRows()
    assert rows.feed("one two", 8) == [] and rows.row.plain == "one two"
    assert [row.plain for row in rows.feed(" three\nfo", 8)] == ["one two", "three"] and rows.row.plain == "fo"
    assert [row.plain for row in rows.finish(8)] == ["fo"] and rows.finish(8) == []


def test_a_tab_reaches_the_next_of_every_eight_columns() -> None:
    assert plain(["a\tb\n\tc\n日\td"], 40) == ["a       b", "        c", "日      d"]


@settings(max_examples=40, deadline=None)
@given(TEXT, st.lists(st.integers(0, 80), max_size=5), WIDTHS)
def test_rows_depend_neither_on_how_the_answer_arrived_nor_on_its_colours(
    text: str, cuts: list[int], width: int
) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[first:last] for first, last in pairwise(places)]
    whole = plain([text], width)
    assert plain(parts, width) == whole
    styles = [GUESSED, OWN, None] * 3
    assert [row.plain for row in grown(list(zip(styles, parts, strict=False)), width)] == whole
    assert all(sum(map(cell_len, row)) <= width for row in whole)
    assert "".join("".join(whole).split()) == "".join(text.split())


def test_each_run_of_tokens_has_its_style_on_whichever_row_it_is() -> None:
    first, second, third = grown([(GUESSED, "one two"), (OWN, " three"), (None, "?"), (GUESSED, " four")], 9)
    assert [row.plain for row in (first, second, third)] == ["one two", "three?", "four"]
    assert [(span.start, span.end, span.style) for span in first.spans] == [(0, 7, GUESSED)]
    assert [(span.start, span.end, span.style) for span in second.spans if span.end > span.start] == [(0, 5, OWN)]
    assert {span.style for span in third.spans} == {GUESSED}


def test_a_text_has_the_same_rows_whatever_was_asked_for_before() -> None:
    def said() -> AnswerText:
        text = AnswerText(coloured=True, prompt="say ")
        for done in ROUNDS:
            text.add(done)
        text.end("!\x1b[")  # a sequence that never ends
        return text

    text = said()
    for rounds, width in ((1, 20), (3, 20), (5, 20), (2, 20), (5, 9), (5, 30), (0, 30)):
        assert text.upto(rounds, width) == said().upto(rounds, width)
    assert text.upto(0, 30) == [Text("say ", spans=[Span(0, 4, "dim")])] and text.upto(5, 30)[-1].plain.endswith("!")
