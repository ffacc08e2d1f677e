"""A race as a page that plays it. Law: one file, no request; without a script it shows the end of the race."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from specdec_cli.format import count, speed
from specdec_cli.race.events import DRAFTED, RaceEvent
from specdec_cli.ui.html import Markup, element, fill, joined
from specdec_cli.ui.race.record import LaneRecord, RaceRecord, Written, race_record
from specdec_cli.ui.race.sentences import NAMES, TITLES, headline, passes, same_text
from specdec_cli.ui.race.spans import Author, Span

_BLANKS: Final = re.compile(r"(^\s+|\s+$|\s*\n\s*|\s{2,})")


def race_page(events: Iterable[RaceEvent]) -> str:
    """The page of a race that ended. Raises: UsageError for one that broke off."""
    record = race_record(events)
    return fill(
        "race",
        {
            "heading": headline(record.state).capitalize(),
            "setting": record.setting,
            "prompt": _prompt(record),
            "verdict": _verdict(record),
            "tracks": joined([_track(lane, record) for lane in record.lanes], "\n"),
            "texts": joined([_text(lane, record) for lane in record.lanes], "\n"),
            "length": f"{record.seconds:.4f}",
            "tokens": str(record.tokens),
            "lead": headline(record.state),
        },
    )


def _prompt(record: RaceRecord) -> Markup:
    """A prompt that the answer does not continue stands above both."""
    if record.start.raw:
        return Markup()
    return element("p", element("span", "prompt ", class_="soft"), record.prompt, class_="prompt")


def _verdict(record: RaceRecord) -> str:
    found = record.finish.measured
    times = [f"{found.drafted_seconds:.2f} s instead of {found.plain_seconds:.2f} s"] if found else []
    return " · ".join([same_text(record.finish), *times, passes(record.finish)])


def _track(lane: LaneRecord, record: RaceRecord) -> Markup:
    """The name, a bar of tokens with the photo finish, and the figures; the script moves them."""
    whole, early = 100 * lane.tokens / record.tokens, 100 * lane.early_tokens / record.tokens
    bar = [element("i", style=f"width:{min(whole, early):.2f}%")]
    if lane.late_from is not None:
        bar.append(element("s", style=f"left:{early:.2f}%;width:{whole - early:.2f}%"))
    return element(
        "div",
        element("b", NAMES[lane.name]),
        element("span", *bar, class_="bar"),
        element("span", element("output", str(lane.tokens)), " tokens", class_="count"),
        element("span", element("output", f"{lane.seconds:.2f}"), " s", class_="time"),
        class_=f"track {lane.name}",
        data_early=str(lane.early_tokens),
        data_end=f"{lane.seconds:.4f}",
    )


def _text(lane: LaneRecord, record: RaceRecord) -> Markup:
    pace = speed(lane.tokens / lane.seconds if lane.seconds else None)
    told = f"{pace} · {count(lane.passes, 'target pass')} · prompt read in {lane.prefill_seconds:.2f} s"
    words = [element("span", record.prompt, class_=Author.PROMPT)] if record.start.raw else []
    words += [_round(done, lane) for done in lane.rounds]
    legend = [
        " · ",
        element("b", "guessed", class_=Author.GUESSED),
        " · ",
        element("b", "target’s own", class_=Author.OWN),
    ]
    return element(
        "article",
        element("h2", TITLES[lane.name], *(legend if lane.name == DRAFTED else [])),
        element("pre", *words, tabindex="0", aria_label=f"text of the lane {NAMES[lane.name]}"),
        element("p", told, class_="soft"),
        class_=lane.name,
    )


def _styled(span: Span) -> Iterator[str]:
    """The words in an element of their author; blanks between lines and around words stay as they are."""
    for place, part in enumerate(_BLANKS.split(span.text)):
        if part:
            yield part if place % 2 else element("b", part, class_=span.author)


def _round(done: Written, lane: LaneRecord) -> Markup:
    late = lane.late_from is not None and done.seconds > lane.late_from
    inside = [piece for span in done.spans for piece in _styled(span)]
    attributes = {"class_": "late"} if late else {}
    return element("span", *inside, data_at=f"{done.seconds:.4f}", data_n=str(done.tokens), **attributes)
