"""The last rows of a lane's text. Law: filtered as one stream, so no sequence survives being split over tokens."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from rich.text import Text

from specdec_cli.events import Finish, RoundDone, Start
from specdec_cli.ui.panel.answer import folds
from specdec_cli.ui.race.spans import Author, Span, spans
from specdec_cli.ui.terminal import TerminalFilter, safe

GUESSED: Final = "green underline"
OWN: Final = "bold yellow"
_STYLES: Final = {Author.GUESSED: GUESSED, Author.OWN: OWN, Author.PROMPT: "dim"}
_TAB = "    "


class LaneText:
    """A lane's text, append-only, with the length that it had after each round."""

    def __init__(self, coloured: bool, prompt: str = "") -> None:
        """Uncoloured where nothing is drafted; `prompt` is what the text continues."""
        self._coloured = coloured
        self._filter = TerminalFilter()
        self._spans: list[Span] = []
        self._lengths: list[int] = []
        self._append(safe(prompt), Author.PROMPT)

    def feed(self, start: Start, done: RoundDone) -> None:
        """One more round."""
        for span in spans(start, done):
            self._append(self._filter.feed(span.text), span.author)
        self._lengths.append(len(self._spans))

    def end(self, finish: Finish) -> None:
        """What was held back belongs to the last round."""
        self._append(self._filter.feed(finish.text_tail) + self._filter.finish(), Author.OWN)
        if self._lengths:
            self._lengths[-1] = len(self._spans)

    def rows(self, rounds: int, bright: int, width: int, height: int) -> list[Text]:
        """The last `height` rows of `width` cells after so many rounds; what came after round `bright` is dim."""
        until = self._lengths[rounds - 1] if rounds else 0
        lit = self._lengths[bright - 1] if bright else 0
        first = self._first(until, width * height)
        text = "".join(span.text for span in self._spans[first:until])
        starts = [0]
        for span in self._spans[first:until]:
            starts.append(starts[-1] + len(span.text))
        rows: list[Text] = []
        place = 0
        for line in text.split("\n"):
            full, rest = folds(line, 0, len(line), width)
            for begin, end in [*full, (rest, len(line))]:
                rows.append(self._row(line[begin:end], place + begin, starts, first, lit))
            place += len(line) + 1
        return rows[-height:]

    def _append(self, text: str, author: Author) -> None:
        if text:
            self._spans.append(Span(text.replace("\t", _TAB), author))

    def _first(self, until: int, cells: int) -> int:
        """A span from which the last `cells` characters and their whole line follow."""
        place, length = until, 0
        while place and (length <= cells or "\n" not in self._spans[place].text):
            place -= 1
            length += len(self._spans[place].text)
        return place

    def _row(self, row: str, at: int, starts: list[int], first: int, lit: int) -> Text:
        """`row`, which begins at character `at` of the spans from `first` on."""
        drawn = Text()
        place = bisect_right(starts, at) - 1
        done = 0
        while done < len(row):
            end = min(starts[place + 1] - at, len(row)) if place + 1 < len(starts) else len(row)
            style = self._style(first + place, lit)
            for char in row[done:end]:
                drawn.append(char, style.replace("underline", "") if char == " " else style)
            done, place = max(end, done), place + 1
        return drawn

    def _style(self, place: int, lit: int) -> str:
        if place >= len(self._spans):
            return ""
        author = self._spans[place].author
        if place >= lit:
            return "dim"
        return _STYLES[author] if self._coloured or author is Author.PROMPT else ""
