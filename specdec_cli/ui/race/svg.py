"""A race as a picture that plays once. Law: valid XML; a viewer that plays nothing shows the end of the race.

The times are the recorded ones. Style sheets alone move it, so it also plays inside a README; who prefers reduced
motion sees the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from rich.cells import cell_len

from specdec_cli.format import count, speed
from specdec_cli.race.events import DRAFTED, RaceEvent
from specdec_cli.ui.html import picture_style
from specdec_cli.ui.race.layout import Run, laid_out
from specdec_cli.ui.race.record import LaneRecord, RaceRecord, race_record
from specdec_cli.ui.race.sentences import NAMES, TITLES, headline, passes, same_text
from specdec_cli.ui.race.spans import Author
from specdec_cli.ui.summary import SEPARATOR

COLUMNS: Final = 44
"""Cells of a lane's text."""
ROWS: Final = 16
"""Rows of a lane's text; a longer one moves up."""
WAIT_SECONDS: Final = 0.6
"""Before the start, so that a reader sees it."""
STEPS: Final = 60
"""Places at which a bar's length is written down."""
_CELL, _ROW, _MARGIN, _GAP = 8.43, 20, 28, 20
_CARD = COLUMNS * _CELL + 28
WIDTH: Final = 2 * _CARD + _GAP + 2 * _MARGIN
_BAR_LEFT, _BAR_RIGHT = _MARGIN + 84, WIDTH - _MARGIN - 190
_TOP = 176
"""Where the lanes' texts begin."""


def race_picture(events: Iterable[RaceEvent]) -> str:
    """The picture of a race that ended. Raises: UsageError for one that broke off."""
    record = race_record(events)
    runs = [laid_out(lane, COLUMNS, record.prompt if record.start.raw else "") for lane in record.lanes]
    rows = min(ROWS, max((run.row + 1 for lane in runs for run in lane), default=1))
    height = _TOP + rows * _ROW + 132
    label = f"Plain and drafted decoding of one prompt: {headline(record.state)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height}" width="{WIDTH:g}" '
            f'height="{height}" role="img" aria-labelledby="title">',
            f'<title id="title">{escape(label)}</title><style>{picture_style("race_picture")}{_motion(record)}</style>',
            f'<rect class="paper" x=".5" y=".5" width="{WIDTH - 1:g}" height="{height - 1}" rx="12"/>',
            *_head(record),
            *(part for place, lane in enumerate(record.lanes) for part in _track(lane, record, place)),
            *(part for place, lane in enumerate(record.lanes) for part in _text(lane, runs[place], place, rows)),
            *_foot(record, _TOP + rows * _ROW + 88),
            "</svg>\n",
        ]
    )


def _motion(record: RaceRecord) -> str:
    """What plays: a round's text appears, bars grow, long texts move up."""
    whole = WAIT_SECONDS + record.seconds
    rules = [
        "@keyframes show { from { opacity: 0 } }\n.at { animation: show .01s backwards }\n",
        ".bar { transform-box: fill-box; transform-origin: left }\n",
    ]
    for lane in record.lanes:
        frames = "".join(f"{at:.1%} {{ transform: scaleX({part:.3f}) }}" for at, part in _growth(lane, whole))
        rules.append(f"@keyframes {lane.name} {{ 0% {{ transform: scaleX(0) }}{frames} }}\n")
        rules.append(f".bar.{lane.name} {{ animation: {lane.name} {whole:.3f}s linear backwards }}\n")
    rules.append("@media (prefers-reduced-motion: reduce) { * { animation: none !important } }\n")
    return "".join(rules)


def _growth(lane: LaneRecord, whole: float) -> Iterator[tuple[float, float]]:
    """(share of the time, share of the lane's bar), at most `STEPS` of them."""
    yield WAIT_SECONDS / whole, 0.0
    every = max(1, len(lane.rounds) // STEPS)
    for place, done in enumerate(lane.rounds, 1):
        if place % every == 0 or place == len(lane.rounds):
            yield (WAIT_SECONDS + done.seconds) / whole, done.tokens / lane.tokens


def _head(record: RaceRecord) -> Iterator[str]:
    yield _line("soft", f"specdec race{SEPARATOR}{record.setting}", _MARGIN, 38)
    yield _at(record.seconds, _line("title", headline(record.state).capitalize(), _MARGIN, 64))
    if not record.start.raw:
        prompt = " ".join(record.prompt.split())
        most = int((WIDTH - 2 * _MARGIN) / 7.6) - 8
        yield _line("soft", f"prompt: {prompt if len(prompt) <= most else prompt[: most - 1] + '…'}", _MARGIN, 86)


def _track(lane: LaneRecord, record: RaceRecord, place: int) -> Iterator[str]:
    """The name, the bar with the photo finish, and the figures when the lane is done."""
    y = 102 + 28 * place
    room = _BAR_RIGHT - _BAR_LEFT
    length = room * lane.tokens / record.tokens
    yield _line(lane.name, NAMES[lane.name], _MARGIN, y + 12)
    yield f'<rect class="track" x="{_BAR_LEFT}" y="{y}" width="{room:.1f}" height="14" rx="7"/>'
    yield f'<rect class="bar {lane.name}" x="{_BAR_LEFT}" y="{y}" width="{length:.1f}" height="14" rx="7"/>'
    if lane.late_from is not None:
        mark = _BAR_LEFT + room * lane.early_tokens / record.tokens
        late = _BAR_LEFT + length - mark
        veil = (
            f'<rect class="card" style="stroke:none;opacity:.6" x="{mark:.1f}" y="{y}" width="{late:.1f}" height="14"/>'
        )
        yield _at(lane.late_from, veil + f'<rect class="mark" x="{mark - 1.5:.1f}" y="{y - 3}" width="3" height="20"/>')
    figures = f"{lane.tokens} tokens  {lane.seconds:.2f} s"
    yield _at(lane.seconds, _line("bold end", figures, WIDTH - _MARGIN, y + 12))


def _text(lane: LaneRecord, runs: Sequence[Run], place: int, rows: int) -> Iterator[str]:
    """The lane's card: its name, its text in a window of `rows` rows, its figures."""
    left, height = _MARGIN + place * (_CARD + _GAP), rows * _ROW + 20
    yield _line("bold", TITLES[lane.name], left + 2, _TOP + 8)
    if lane.name == DRAFTED:
        yield from _legend(left + 9 * _CELL + 6, _TOP + 8)
    yield f'<rect class="card" x="{left:.1f}" y="{_TOP + 18}" width="{_CARD:.1f}" height="{height}" rx="9"/>'
    pace = speed(lane.tokens / lane.seconds if lane.seconds else None)
    told = f"{pace}{SEPARATOR}{count(lane.passes, 'target pass')}"
    yield _at(lane.seconds, _line("soft", told, left + 2, _TOP + height + 36))
    inside = f'x="{left:.1f}" y="{_TOP + 27}" width="{_CARD:.1f}" height="{rows * _ROW + 6}"'
    yield f'<clipPath id="{lane.name}"><rect {inside}/></clipPath><g clip-path="url(#{lane.name})">'
    last = max((run.row for run in runs), default=0)
    frames, up = _moves(runs, rows), max(last + 1 - rows, 0) * _ROW
    if frames:
        whole = WAIT_SECONDS + max(run.seconds for run in runs)
        keys = "".join(f"{(WAIT_SECONDS + at) / whole:.2%} {{ transform: translateY({-y}px) }}" for at, y in frames)
        yield f"<style>@keyframes up-{lane.name} {{ 0% {{ transform: none }}{keys} }} "
        yield f"#text-{lane.name} {{ animation: up-{lane.name} {whole:.3f}s step-end backwards }}</style>"
    yield f'<g id="text-{lane.name}" transform="translate(0 {-up})">'
    yield from _runs(lane, runs, left + 14)
    yield "</g></g>"


def _moves(runs: Sequence[Run], rows: int) -> list[tuple[float, int]]:
    """(seconds, pixels that the text has moved up by then), where it must."""
    found: list[tuple[float, int]] = []
    shown = rows - 1
    for run in runs:
        if run.row > shown:
            shown = run.row
            found.append((run.seconds, (shown + 1 - rows) * _ROW))
    return found


def _runs(lane: LaneRecord, runs: Sequence[Run], left: float) -> Iterator[str]:
    """The runs of text, those of one round in one group that appears at its time."""
    group: list[str] = []
    for place, run in enumerate(runs):
        group += _run(lane, run, left)
        if place + 1 == len(runs) or runs[place + 1].seconds != run.seconds:
            late = " late" if lane.late_from is not None and run.seconds > lane.late_from else ""
            yield _at(run.seconds, "".join(group), late)
            group = []


def _run(lane: LaneRecord, run: Run, left: float) -> Iterator[str]:
    x, y, width = left + run.column * _CELL, _TOP + 30 + run.row * _ROW, cell_len(run.text) * _CELL
    shown = lane.name == DRAFTED or run.author is Author.PROMPT
    if run.author is Author.GUESSED:
        yield f'<rect class="guessed" x="{x:.1f}" y="{y + 14}" width="{max(width - 1, 1):.1f}" height="2"/>'
    elif shown and run.author is Author.OWN:
        yield f'<rect class="own" x="{x:.1f}" y="{y - 2}" width="{width:.1f}" height="18" rx="3"/>'
    name = f' class="{run.author}"' if shown else ""
    pin = f'textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"'
    yield f'<text{name} x="{x:.1f}" y="{y + 11}" {pin} xml:space="preserve">{escape(run.text)}</text>'


def _legend(x: float, y: float) -> Iterator[str]:
    yield f'<rect class="guessed" x="{x:.1f}" y="{y + 3}" width="{7 * _CELL:.1f}" height="2"/>'
    yield _line(Author.GUESSED, "guessed", x, y)
    x += 9 * _CELL
    yield f'<rect class="own" x="{x - 3:.1f}" y="{y - 13}" width="{12 * _CELL + 6:.1f}" height="18" rx="3"/>'
    yield _line(Author.OWN, "target’s own", x, y)


def _foot(record: RaceRecord, y: float) -> Iterator[str]:
    found = record.finish.measured
    times = [f"{found.drafted_seconds:.2f} s instead of {found.plain_seconds:.2f} s"] if found else []
    words = SEPARATOR.join([same_text(record.finish), *times, passes(record.finish)])
    yield _at(record.seconds, _line("bold", words, _MARGIN, y))
    yield _line("soft", "one machine, in turns: the lane with less compute time behind it went next", _MARGIN, y + 22)


def _at(seconds: float, inside: str, more: str = "") -> str:
    """`inside`, from that compute time on."""
    return f'<g class="at{more}" style="animation-delay:{WAIT_SECONDS + seconds:.3f}s">{inside}</g>'


def _line(name: str, words: str, x: float, y: float) -> str:
    return f'<text class="{name}" x="{x:.1f}" y="{y:g}" xml:space="preserve">{escape(words)}</text>'
