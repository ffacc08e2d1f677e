"""Terminal safety and consoles. Foreign text is shown only through `TerminalFilter`, `safe` or `visible`.

Rich strips five control characters and lets ESC and C1 pass, so a model could clear the screen, write the clipboard or
retitle the window (CWE-150). Sequences are recognised on the decoded stream, however its tokens split them.
"""

from __future__ import annotations

import os
import re
import selectors
import unicodedata
from typing import IO, Final, TextIO

from rich.console import Console
from rich.text import Text

MUTED: Final = "default dim"
"""The style of what matters least. The bright black of 16 colours is the background in Solarized's schemes."""

USUAL_COLUMNS: Final = 80
LONGEST_STRING: Final = 256
"""Characters of an unterminated control sequence before it counts as text: a stray OSC hides no answer."""

_CSI = r"(?:\x1b\[|\x9b)[ -?]{0,256}"
_STRING, _BODY = r"(?:\x1b[]PX^_k]|[\x90\x98\x9d-\x9f])", r"[^\x07\x9c\x1b\n]{0,256}"
_SEQUENCE = re.compile(
    rf"{_CSI}[@-~]|{_STRING}{_BODY}(?:\x07|\x9c|\x1b\\)|\x1b[ -/]{{1,256}}[0-~]|\x1b(?![]PX^_k[])[0-~]"
)
_UNFINISHED = re.compile(rf"(?:{_CSI}|{_STRING}{_BODY}\x1b?|\x1b[ -/]{{0,256}})\Z")
_INTRODUCER = re.compile(r"\x1b[]PX^_k[ -/]?|[\x90\x98\x9b\x9d-\x9f]")

# Letter and bidi marks, zero-width spaces, invisible operators, tags. ZWNJ and ZWJ stay: scripts and emoji need them.
_INVISIBLE: Final = frozenset(
    map(chr, [0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF])
) | frozenset(map(chr, [*range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080)]))
_CONTROLS: Final = frozenset(map(chr, [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)]))
_JOINERS: Final = frozenset(
    map(chr, [0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400), *range(0xE0100, 0xE01F0)])
)
_REPLACED: Final = {
    **dict.fromkeys(map(ord, _INVISIBLE | _CONTROLS)),
    **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"),
    **dict.fromkeys((0x2028, 0x2029), "\n"),
}


class TerminalFilter:
    """Makes decoded text harmless: no controls but newline and tab, no escape sequences, no bidi or invisible tricks.

    The joined output depends only on the joined input, not on how `feed` calls split it. A carriage return is dropped,
    so \\r\\n becomes \\n. A control string that is still open at a newline, another ESC, `LONGEST_STRING` characters or
    the end counts as text: only its introducer is dropped, and the rest is shown, filtered.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The part of the held text and `text` that is safe to write now."""
        text, self._held = self._held + text, ""
        shown, place = [], 0
        while found := _INTRODUCER.search(text, place):
            shown.append(text[place : found.start()])
            if _UNFINISHED.match(text, found.start()):
                self._held, place = text[found.start() :], len(text)
            else:
                whole = _SEQUENCE.match(text, found.start())
                place = (whole or found).end()
        return "".join([*shown, text[place:]]).translate(_REPLACED)

    def finish(self) -> str:
        """The text of an unfinished sequence; the filter is then as new."""
        shown = ""
        while self._held:
            found = _INTRODUCER.match(self._held)
            rest, self._held = self._held[found.end() if found else 1 :], ""
            shown += self.feed(rest)
        return shown


def safe(text: str) -> str:
    """`text` through a fresh `TerminalFilter`: for names, ids, paths and messages."""
    terminal_filter = TerminalFilter()
    return terminal_filter.feed(text) + terminal_filter.finish()


def visible(piece: str) -> str:
    """A token's text with every invisible character drawn; it never joins its neighbours."""
    if piece and unicodedata.category(piece[0]).startswith("M") and piece[0] not in _JOINERS:
        piece = "\N{DOTTED CIRCLE}" + piece
    return "".join(map(_picture, piece))


def _picture(char: str) -> str:
    if known := {" ": "␣", "\n": "↵", "\t": "⇥", "\x7f": "␡"}.get(char):
        return known
    if char < " ":
        return chr(0x2400 + ord(char))
    if _REPLACED.get(ord(char)) == "\N{REPLACEMENT CHARACTER}":
        return "\N{REPLACEMENT CHARACTER}"
    # Joiners are escaped too: terminals disagree about the width of what they join, and a row must not wrap.
    hidden = ord(char) in _REPLACED or char in _JOINERS
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


def has_colour(console: Console) -> bool:
    """Whether what is printed on `console` may be told by its colour."""
    return console.color_system is not None and not console.no_color


def print_words(console: Console, text: Text, end: str = "\n") -> None:
    """On a terminal its rows break between words; elsewhere a line stays a line."""
    console.print(text, soft_wrap=not is_terminal(console.file), end=end)


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person may be looking at this stream."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def can_be_awaited(stream: IO[str]) -> bool:
    """Whether a loop of events can wait for keys of this terminal: kqueue, which is macOS's, refuses some."""
    try:
        with selectors.DefaultSelector() as waiting:
            waiting.register(stream, selectors.EVENT_READ)
    except OSError:
        return False
    return True


def can_draw(stream: TextIO) -> bool:
    """Whether the stream can draw a live panel: a terminal that moves its cursor and has box-drawing characters."""
    if not is_terminal(stream) or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
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
