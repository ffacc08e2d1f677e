"""A server's requests as rows of a table (pure). Law: figures and marks only; no word of a prompt or an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from specdec_cli.format import count, duration, percent, speed
from specdec_cli.serve.status import JobStatus, Totals
from specdec_cli.stats import ratio
from specdec_cli.ui.panel.gauges import average, bar
from specdec_cli.ui.panel.rounds import shortened, spread, strip
from specdec_cli.ui.summary import SEPARATOR
from specdec_cli.ui.terminal import safe

# Title and least cells of a column, the first to be left out last; what is left is the name's.
COLUMNS: Final = (("read", 8), ("reused", 8), ("tokens", 8), ("tok/s", 7), ("accepted", 10), ("time", 8))
DISPENSABLE: Final = ("reused", "time")
NAME: Final = 18
WIDEST_COLUMN: Final = 14


@dataclass(frozen=True, slots=True)
class Table:
    """The columns that fit rows of `width` cells, each (title, cells)."""

    width: int
    columns: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, width: int) -> Table:
        """As many columns as fit beside a name, as wide as that allows."""
        columns = list(COLUMNS)
        for title in DISPENSABLE:
            if sum(cells for _, cells in columns) + NAME > width:
                columns = [column for column in columns if column[0] != title]
        spare = max(width - NAME - sum(cells for _, cells in columns), 0) // (len(columns) + 1)
        return cls(width, tuple((title, min(cells + spare, WIDEST_COLUMN)) for title, cells in columns))

    @property
    def head(self) -> Text:
        """The titles."""
        return Text(self._row("request", {title: title for title, _ in self.columns}), "dim")

    def running(self, job: JobStatus) -> Text:
        """A job that runs: its figures, or how far it has read."""
        if job.passes:
            return self._figures(job)
        name = Text(f"{shortened(safe(job.noun), NAME - 1):<{NAME}}", "bold")
        if job.reading is None:
            return Text.assemble(name, (f"reads {count(job.prompt_tokens, 'token')}…", "dim"))
        return Text.assemble(name, self._reading(job, self.width - NAME))

    def waiting(self, job: JobStatus) -> Text:
        """A job that waits, and its place."""
        name = shortened(f"{job.position + 1:>2}. {safe(job.noun)}", NAME + 2)
        said = f"waits {duration(int(job.seconds))}, {count(job.prompt_tokens, 'token')}"
        return Text(shortened(f"{name:<{NAME + 4}}{said}", self.width), "dim")

    def totals(self, totals: Totals) -> Text:
        """All jobs so far."""
        pace = ratio(totals.timed_tokens, totals.timed_seconds)
        figures = {
            "read": grouped(totals.read_tokens),
            "reused": grouped(totals.cached_tokens),
            "tokens": grouped(totals.generated_tokens),
            "tok/s": _pace(pace),
            "accepted": percent(totals.acceptance_rate),
        }
        return Text(self._row(f"all {grouped(totals.jobs)}", figures))

    def _figures(self, job: JobStatus) -> Text:
        figures = {
            "read": grouped(job.read_tokens),
            "reused": grouped(job.cached_tokens),
            "tokens": grouped(job.generated_tokens),
            "tok/s": _pace(job.tokens_per_second),
            "accepted": percent(job.acceptance_rate),
            "time": duration(int(job.seconds)),
        }
        row = Text(self._row(shortened(safe(job.noun), NAME - 1), figures))
        row.stylize("bold", 0, NAME)
        return row

    def _reading(self, job: JobStatus, width: int) -> Text:
        """━━━━━━╸───── 4 096 of 12 000."""
        assert job.reading is not None
        read, tokens = job.reading.read_tokens, job.reading.prompt_tokens
        who = "draft reads" if job.reading.reader == "draft" else "reads"
        words = f"{who} {grouped(read)} of {grouped(tokens)}"
        room = width - len(words) - 2
        if room < 4:
            return Text(shortened(words, width), "dim")
        return Text.assemble(bar(ratio(read, tokens), None, room), "  ", (words, "dim"))

    def _row(self, name: str, figures: dict[str, str]) -> str:
        cells = "".join(f"{figures.get(title, ''):>{cells}}" for title, cells in self.columns)
        return f"{name:<{self.width - len(cells)}}{cells}"


def rounds_row(job: JobStatus, width: int) -> Text:
    """What became of the newest drafts, and what a pass gives on average."""
    if not job.rounds:
        return Text()
    mean = average({"mean_acceptance_length": ratio(job.generated_tokens, job.passes)}, width)
    return strip(job.rounds, None, mean, width)


def summary_line(name: str, running: Sequence[JobStatus], waiting: int, totals: Totals, width: int) -> Text:
    """The whole panel in one line, its most important words first."""
    paces = [job.tokens_per_second for job in running if job.tokens_per_second]
    said = [
        busy(len(running), waiting),
        *([speed(sum(paces))] if paces else []),
        *([f"{percent(totals.acceptance_rate)} accepted"] if totals.draft_tokens else []),
        f"{count(totals.jobs, 'request')} done",
    ]
    line = Text.assemble((safe(name), "bold"), *((SEPARATOR + words, "") for words in said))
    return spread(line, Text(), width) if line.cell_len > width else line


def ended_line(totals: Totals, width: int) -> Text:
    """What a server that has ended did."""
    accepted = f", {percent(totals.acceptance_rate)} of drafts accepted" if totals.draft_tokens else ""
    words = f"{count(totals.jobs, 'request')}, {count(totals.generated_tokens, 'token')} generated{accepted}"
    return Text(shortened(words, width))


def busy(running: int, waiting: int) -> str:
    """ "2 run, 1 waits"."""
    if not running and not waiting:
        return "idle"
    waits = f", {waiting} {'waits' if waiting == 1 else 'wait'}" if waiting else ""
    return f"{running} {'runs' if running == 1 else 'run'}{waits}"


def grouped(number: int) -> str:
    """12345 -> "12 345"."""
    return f"{number:,}".replace(",", " ")


def _pace(tokens_per_second: float | None) -> str:
    return speed(tokens_per_second).removesuffix(" tok/s")
