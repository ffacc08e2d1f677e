"""`specdec replay`. A trace alone is enough: no model is loaded, and every figure is the recorded one.

Order and pace are the recorded ones, too; every wait can be cancelled.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from specdec_cli.command.command import grouped, notify
from specdec_cli.command.export import write_export
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Event, Failure, Prefill, RoundDone
from specdec_cli.pairs.pair import DEMO
from specdec_cli.session.signals import Interrupt
from specdec_cli.terminal.look import Look, ReplayLook

if TYPE_CHECKING:
    from specdec_cli.core.trace import Trace
    from specdec_cli.terminal.display import OnEvent

app = typer.Typer()
EXAMPLES = """specdec run --trace answer.jsonl 'Return the lines of a file.'
specdec replay answer.jsonl --speed 0.5
specdec replay answer.jsonl --svg answer.svg"""


@app.command(epilog=EXAMPLES)
@grouped
def replay(
    *,
    file: Path,
    speed: float | None = None,
    svg: Path | None = None,
    display: ReplayLook,
) -> None:
    """Play a trace again, or export it as a picture.

    Accepted and rejected words, and the target's own, have colours and marks.
    """
    from specdec_cli.apps.replay.picture import trace_picture
    from specdec_cli.core.trace import read_trace

    if speed is not None and not speed > 0.0:
        raise UsageError(f"--speed {speed} is not above 0", "for example: --speed 0.5")
    trace = read_trace(file)
    name = DEMO if trace.replies[0].start.target == f"specdec:{DEMO}/target" else ""
    finished = True
    if svg is None:
        finished = _play(trace, name, speed, Look(**asdict(display)))
    else:
        write_export("--svg", svg, trace_picture(trace, name), shown=not display.quiet, plain=display.plain)
    if finished and trace.cut_short and not display.quiet:
        notify(f"{file} ends before its last reply does", display.plain)
    if not finished:
        raise typer.Exit(130)


def _play(trace: Trace, name: str, speed: float | None, look: Look) -> bool:
    """Whether it came to its end."""
    from specdec_cli.terminal.display import open_display, print_error

    with ExitStack() as stack:
        screen = open_display(sys.stdout, sys.stderr, look, name)
        interrupt = stack.enter_context(Interrupt())
        watched = sys.stdout.isatty() or sys.stderr.isatty()
        pause = paced(speed or (1.0 if watched else math.inf), interrupt.requested)
        show = stack.enter_context(screen)
        for reply in trace.replies:
            if not play(reply.events(), show, pause):
                return not interrupt.requested()
            if isinstance(reply.end, Failure):
                print_error(sys.stderr, reply.end, look.plain)
    return True


Pause = Callable[[Event], bool]
"""Waits before this event; False ends the replay instead."""
Sleep = Callable[[float], None]

_SLICE_SECONDS: Final = 0.05


def play(events: Iterable[Event], show: OnEvent, pause: Pause) -> bool:
    """Shows the events, each after its pause; False if a pause ended it before the last one."""
    for event in events:
        if not pause(event):
            return False
        show(event)
    return True


def paced(
    speed: float,
    cancelled: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Pause:
    """Waits for the recorded time ÷ `speed` since the first event; infinite speed never waits. Drawing counts."""
    due: float | None = None

    def pause(event: Event) -> bool:
        nonlocal due
        now = clock()
        due = max(due or now, now - 1.0) + _recorded_seconds(event) / speed
        while (left := due - clock()) > 0.0 and not cancelled():
            sleep(min(left, _SLICE_SECONDS))
        return not cancelled()

    return pause


def _recorded_seconds(event: Event) -> float:
    """Seconds of work that led to this event."""
    if isinstance(event, Prefill):
        return event.seconds
    if isinstance(event, RoundDone):
        judged = event.round
        return judged.draft_seconds + judged.verify_seconds + judged.draft_prefill_seconds
    return 0.0
