"""The live region: frames overwrite one another in place, and each is one write."""

from __future__ import annotations

import io

import pyte
import pytest
from rich.text import Text

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


@pytest.fixture(autouse=True)
def _an_able_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TMUX"):
        monkeypatch.delenv(name, raising=False)


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
