"""A trace as a picture of coloured text. Law: valid XML, whatever the text holds.

Everything lies on a grid of cells; `textLength` fits each run to its cells in any font.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from xml.sax.saxutils import escape

from rich.cells import cell_len

from specdec_cli.fates import Fate
from specdec_cli.kinds import kind_of
from specdec_cli.trace import Reply, Trace
from specdec_cli.ui.export.html import figures, heading, settings
from specdec_cli.ui.export.tokens import GLYPHS, MEANINGS, ColouredToken, coloured, drawn
from specdec_cli.ui.html import picture_style
from specdec_cli.ui.summary import SEPARATOR

COLUMNS: Final = 88
_CELL, _ROW, _MARGIN, _TAB = 8.4, 22, 28, 4


@dataclass(frozen=True, slots=True)
class _Run:
    """The text of one token on one row, starting at `column`."""

    token: int
    fate: Fate
    text: str
    row: int
    column: int


def svg_picture(trace: Trace) -> str:
    """Every reply of the trace, one below the other, and the legend."""
    parts: list[str] = []
    row = 0
    for reply in trace.replies:
        drawn, row = _reply(reply, row)
        parts += drawn
    legend, row = _legend(row, trace)
    width, height = COLUMNS * _CELL + 2 * _MARGIN, row * _ROW + 2 * _MARGIN
    start = trace.replies[0].start
    label = f"What {heading(start)} said: accepted, rejected, discarded and corrected tokens"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-labelledby="title">',
            f'<title id="title">{escape(label)}</title><style>{picture_style("trace_picture")}</style>',
            f'<rect class="paper" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="10"/>',
            *parts,
            *legend,
            "</svg>\n",
        ]
    )


def _reply(reply: Reply, row: int) -> tuple[list[str], int]:
    """The reply's heading, figures and text, starting at `row`, and the row after them."""
    line = SEPARATOR.join(f"{name} {value}" for name, value, _ in figures(reply.finish.stats))
    head = [_text("title", heading(reply.start)[:COLUMNS], row, 0, pinned=False)]
    rows = [words for told in (settings(reply.start), line) for words in _folded(told, COLUMNS + 8)]
    head += [_text("soft", words[: COLUMNS + 8], row + place, 0, pinned=False) for place, words in enumerate(rows, 1)]
    runs = _laid_out(coloured(reply), row + len(rows) + 2)
    last = max((run.row for run in runs), default=row + 3)
    return [*head, *(part for run in runs for part in _draw(run))], last + 3


def _folded(words: str, width: int) -> Iterator[str]:
    line = ""
    for part in words.split(SEPARATOR):
        if line and len(line) + len(SEPARATOR) + len(part) > width:
            yield line
            line = part
        else:
            line = f"{line}{SEPARATOR}{part}" if line else part
    yield line


def _laid_out(tokens: Sequence[ColouredToken], row: int) -> list[_Run]:
    """The tokens on rows of `COLUMNS` cells, broken at the text's line breaks and, where too long, at spaces."""
    runs: list[_Run] = []
    column = 0
    for chunk in _chunks(tokens):
        if column + sum(cell_len(char) for _, char in chunk if not char.isspace()) > COLUMNS and column:
            row, column = row + 1, 0
        for number, char in chunk:
            shown = {"\n": "↵", "\t": " " * (_TAB - column % _TAB)}.get(char, char)
            if column and column + cell_len(shown) > COLUMNS + shown.isspace() + (char == "\n"):
                row, column = row + 1, 0
            _append(runs, _Run(number, tokens[number].fate, shown, row, column))
            row, column = (row + 1, 0) if char == "\n" else (row, column + cell_len(shown))
    return runs


def _chunks(tokens: Sequence[ColouredToken]) -> Iterator[list[tuple[int, str]]]:
    """(token number, character) in pieces that stay on one row if possible: words, and tokens that were not emitted."""
    word: list[tuple[int, str]] = []
    for number, token in enumerate(tokens):
        indent, text = token.parts
        chars = [(number, char) for char in indent + GLYPHS[token.fate] + text]
        if not token.said:
            yield from ([word] if word else [])
            yield chars
            word = []
            continue
        for _, char in chars:
            word.append((number, char))
            if char in " \n\t":
                yield word
                word = []
    if word:
        yield word


def _append(runs: list[_Run], run: _Run) -> None:
    """Adds the run, or extends the last one where it continues it."""
    last = runs[-1] if runs else None
    if last is not None and (last.token, last.row) == (run.token, run.row):
        runs[-1] = replace(last, text=last.text + run.text)
    else:
        runs.append(run)


def _draw(run: _Run) -> Iterator[str]:
    """The run's background, an underline if accepted, and its text."""
    cells = cell_len(run.text)
    x, y, width = _MARGIN + run.column * _CELL, _MARGIN + run.row * _ROW, cells * _CELL
    if run.fate is Fate.ACCEPTED:
        yield f'<rect class="accepted" x="{x:.1f}" y="{y + 15:g}" width="{max(width - 1.5, 1):.1f}" height="2"/>'
    elif run.fate in (Fate.CORRECTION, Fate.BONUS, Fate.REJECTED):
        ground = f'x="{x:.1f}" y="{y - 3:g}" width="{width:.1f}" height="19" rx="3"'
        yield f'<rect class="{run.fate}" {ground}/>'
    if run.text.strip():
        yield _text(run.fate, run.text, run.row, run.column)


def _text(name: str, words: str, row: int, column: int, pinned: bool = True) -> str:
    place = f'x="{_MARGIN + column * _CELL:.1f}" y="{_MARGIN + row * _ROW + 11:g}"'
    pin = f' textLength="{cell_len(words) * _CELL:.1f}" lengthAdjust="spacingAndGlyphs"' if pinned else ""
    return f'<text class="{name}" {place}{pin} xml:space="preserve">{escape(words)}</text>'


def _legend(row: int, trace: Trace) -> tuple[list[str], int]:
    """What the fates mean, and who drafted."""
    parts: list[str] = []
    for fate, meaning in MEANINGS.items():
        parts += _draw(_Run(0, fate, GLYPHS[fate] + fate, row, 0))
        parts.append(_text("soft", meaning, row, 14, pinned=False))
        row += 1
    for name, meaning in _drafters(trace):
        parts += [_text(Fate.PLAIN, name[:13], row, 0), _text("soft", meaning, row, 14, pinned=False)]
        row += 1
    return parts, row


def _drafters(trace: Trace) -> Iterator[tuple[str, str]]:
    """Names of those who drafted, each with what it is and how much of it was accepted."""
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for round in (done.round for reply in trace.replies for done in reply.rounds if done.round.draft):
        drafted[round.drafter] += len(round.draft)
        accepted[round.drafter] += round.accepted
    for name in sorted(drafted):
        about = kind_of(name).about
        yield drawn(name), f"drafted{': ' * bool(about)}{about}; {accepted[name]} of {drafted[name]} accepted"
