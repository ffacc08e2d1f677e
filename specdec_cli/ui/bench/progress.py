"""Progress of a bench on stderr. Law: one line that is overwritten on a terminal, a line for each phase elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from specdec_cli.ui.pairs import print_line
from specdec_cli.ui.spelling import spelled
from specdec_cli.ui.suspension import cursor_for_the_shell
from specdec_cli.ui.terminal import can_draw, make_console, safe


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """`report(what, share, seconds left)` draws; `say(sentence)` prints a line that stays."""

    report: Callable[[str, float, float], None]
    say: Callable[[str], None]


@contextmanager
def bench_progress(err: TextIO) -> Iterator[BenchProgress]:
    """Progress on `err`."""
    if not can_draw(err):
        yield BenchProgress(_lines(err), lambda sentence: print_line(err, sentence))
        return
    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TextColumn("{task.fields[left]:>6}", markup=False),
        TextColumn("{task.description}", markup=False),
    )
    console = make_console(err, plain=False)
    # Drawn only on a call: a redrawing thread would take time from what is being measured.
    bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
    with cursor_for_the_shell(err), bar as progress:
        task = progress.add_task("", total=1.0, left="")
        room = max(console.width - 36, 8)

        def report(what: str, share: float, seconds_left: float) -> None:
            described = Text(safe(what))
            described.truncate(room, overflow="ellipsis")
            progress.update(task, completed=share, left=clock(seconds_left), description=described.plain, refresh=True)

        yield BenchProgress(report, lambda sentence: console.print(Text(safe(sentence))))


@contextmanager
def silent() -> Iterator[BenchProgress]:
    """The progress under --quiet: none."""
    yield BenchProgress(lambda what, share, seconds_left: None, lambda sentence: None)


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _lines(err: TextIO) -> Callable[[str, float, float], None]:
    """One line for each phase; the first word of `what` names it."""
    said: set[str] = set()

    def report(what: str, share: float, seconds_left: float) -> None:
        phase = what.split(" ", 1)[0]
        if phase not in said:
            said.add(phase)
            err.write(spelled(f"{safe(phase)}… {clock(seconds_left)} left\n", err))
            err.flush()

    return report
