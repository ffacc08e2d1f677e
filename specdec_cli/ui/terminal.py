"""Terminal safety and consoles. Foreign text is shown only through `TerminalFilter`, `safe` or `visible`.

Rich strips five control characters and lets ESC and C1 pass, so a model could clear the screen, write the clipboard or
retitle the window (CWE-150). Sequences are recognised on the decoded stream, however its tokens split them.
"""

from __future__ import annotations

import os
import unicodedata
from collections import deque
from collections.abc import Mapping
from typing import IO, Final, TextIO

from rich.console import Console
from rich.text import Text

MUTED: Final = "default dim"
"""The style of what matters least. The bright black of 16 colours is the background in Solarized's schemes."""

USUAL_COLUMNS: Final = 80
LONGEST_STRING: Final = 256
"""Characters of an unterminated control string before it counts as text: a stray OSC hides no answer."""

_ESC, _BEL, _ST = "\x1b", "\x07", "\x9c"
_STRING_OPENERS = frozenset("]PX^_k")  # OSC DCS SOS PM APC, and screen's title string
_C1_STRING_OPENERS = frozenset("\x90\x98\x9d\x9e\x9f")
_C1_CSI = "\x9b"


def _spans(*spans: tuple[int, int]) -> frozenset[str]:
    return frozenset(chr(code) for first, last in spans for code in range(first, last + 1))


_INVISIBLE = _spans(
    (0x061C, 0x061C),  # Arabic letter mark
    (0x180E, 0x180E),
    (
        0x200B,
        0x200B,
    ),  # zero-width space; ZWNJ and ZWJ stay: Persian, Indic scripts and emoji need them
    (0x200E, 0x200F),
    (0x202A, 0x202E),  # bidi embeddings and overrides
    (0x2060, 0x206F),  # word joiner, invisible operators, bidi isolates, deprecated formats
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),  # interlinear annotation
    (0xE0000, 0xE007F),  # tags: invisible ASCII
)
_CONTROLS = _spans((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F))
_SURROGATES = _spans((0xD800, 0xDFFF))
_JOINERS = frozenset("\u200c\u200d") | _spans((0xFE00, 0xFE0F), (0x1F3FB, 0x1F3FF), (0xE0100, 0xE01EF))
_REPLACED: Final = {
    **dict.fromkeys(map(ord, _INVISIBLE | _CONTROLS)),
    **dict.fromkeys(map(ord, _SURROGATES), "\N{REPLACEMENT CHARACTER}"),
    0x2028: "\n",
    0x2029: "\n",
}


class TerminalFilter:
    """Makes decoded text harmless: no controls but newline and tab, no escape sequences, no bidi or invisible tricks.

    The joined output depends only on the joined input, not on how `feed` calls split it. A carriage return is dropped,
    so \\r\\n becomes \\n. A control string that is still open at a newline, another ESC, `LONGEST_STRING` characters or
    the end counts as text: only its introducer is dropped, and the rest is shown, filtered.
    """

    __slots__ = ("_held", "_state")

    def __init__(self) -> None:
        self._state = "text"
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        """The part of the held text and `text` that is safe to write now."""
        if self._state == "text" and _ESC not in text and _CONTROLS.isdisjoint(text):
            return text.translate(_REPLACED)
        shown: list[str] = []
        waiting = deque(text)
        while waiting:
            again = self._step(waiting.popleft(), shown)
            waiting.extendleft(reversed(again))
        return "".join(shown).translate(_REPLACED)

    def finish(self) -> str:
        """The text of an unfinished sequence; the filter is then as new."""
        shown: list[str] = []
        while self._held or self._state != "text":
            held, self._held, self._state = "".join(self._held), [], "text"
            shown.append(self.feed(held))
        return "".join(shown)

    def _step(self, char: str, shown: list[str]) -> list[str]:
        """Consumes one character; returns the characters that must be read again as text."""
        if self._state == "text":
            return self._text(char, shown)
        if self._state == "escape":
            return self._escape(char)
        if self._state == "charset":
            return self._hold(char) if " " <= char <= "/" else self._close(char if not "0" <= char <= "~" else "")
        if self._state == "csi":
            if " " <= char <= "?":
                return self._hold(char)
            return self._close() if "@" <= char <= "~" else self._give_up(char)
        return self._string(char)

    def _text(self, char: str, shown: list[str]) -> list[str]:
        if char == _ESC:
            self._state = "escape"
        elif char == _C1_CSI:
            self._state = "csi"
        elif char in _C1_STRING_OPENERS:
            self._state = "string"
        else:
            shown.append(char)
        return []

    def _escape(self, char: str) -> list[str]:
        if char == _ESC:
            return []
        if char == "[":
            self._state = "csi"
        elif char in _STRING_OPENERS:
            self._state = "string"
        elif " " <= char <= "/":
            self._state = "charset"
        else:
            return self._close("" if "0" <= char <= "~" else char)
        return []

    def _string(self, char: str) -> list[str]:
        if self._held and self._held[-1] == _ESC:
            return self._close() if char == "\\" else self._give_up(char)
        if char in (_BEL, _ST):
            return self._close()
        return self._give_up(char) if char == "\n" else self._hold(char)

    def _hold(self, char: str) -> list[str]:
        self._held.append(char)
        return self._give_up("") if len(self._held) > LONGEST_STRING else []

    def _close(self, again: str = "") -> list[str]:
        """Drops a sequence that ended. `again` is a character that was not part of it."""
        self._state, self._held = "text", []
        return list(again)

    def _give_up(self, char: str) -> list[str]:
        """Reads the held characters again as text: they were no sequence."""
        held = self._held
        self._close()
        return [*held, *char]


def safe(text: str) -> str:
    """`text` through a fresh `TerminalFilter`: for names, ids, paths and messages."""
    terminal_filter = TerminalFilter()
    return terminal_filter.feed(text) + terminal_filter.finish()


def visible(piece: str) -> str:
    """A token's text with every invisible character drawn; it never joins its neighbours."""
    if piece and unicodedata.category(piece[0]).startswith("M") and piece[0] not in _JOINERS:
        piece = "\N{DOTTED CIRCLE}" + piece
    return "".join(map(_picture, piece))


def draw_controls(text: str) -> str:
    """`text` with line breaks, tabs, spaces and joiners unchanged, and controls and bidi tricks as visible signs."""
    return "".join(
        char if char in " \n\t" or char in _JOINERS or unicodedata.category(char).startswith("M") else visible(char)
        for char in text
    )


def _picture(char: str) -> str:
    known = {" ": "␣", "\n": "↵", "\t": "⇥", "\x7f": "␡"}.get(char)
    if known is not None:
        return known
    if char < " ":
        return chr(0x2400 + ord(char))
    if char in _SURROGATES:
        return "\N{REPLACEMENT CHARACTER}"
    # Joiners are escaped too: terminals disagree about the width of what they join, and a row must not wrap.
    hidden = char in _INVISIBLE or char in _CONTROLS or char in _JOINERS or char in "\u2028\u2029"
    return char.encode("ascii", "backslashreplace").decode() if hidden else char


def encodable(text: str, stream: TextIO) -> str:
    """`text` with `?` for what the stream's encoding cannot carry (lone surrogates, symbols under LANG=C)."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def make_console(stream: TextIO, *, plain: bool) -> Console:
    """A console that interprets no markup, emoji names or patterns; `plain` writes no control code at all.

    NO_COLOR removes colour and TERM=dumb every code, both by rich.
    """
    console = Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        force_terminal=False if plain else None,
        color_system=None if plain else "auto",
    )
    if console.width < 1:  # COLUMNS=0, on which rich writes nothing at all, errors included
        console.width = USUAL_COLUMNS
    return console


def print_words(console: Console, text: Text) -> None:
    """On a terminal its rows break between words; elsewhere a line stays a line."""
    console.print(text, soft_wrap=not is_terminal(console.file))


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person may be looking at this stream."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def can_draw(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the stream can draw a live panel: a terminal that moves its cursor and has box-drawing characters."""
    if not is_terminal(stream) or environment.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        "╭━╋✓✗↳▁␣≈".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def same_terminal(one: TextIO, other: TextIO) -> bool:
    """Whether both streams write to the same terminal device."""
    try:
        return is_terminal(one) and is_terminal(other) and os.ttyname(one.fileno()) == os.ttyname(other.fileno())
    except (OSError, ValueError):
        return False


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """(columns, rows) of the stream's terminal now, 80 × 24 where unknown."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24
