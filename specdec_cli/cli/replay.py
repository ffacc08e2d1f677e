"""`specdec replay`. A trace alone is enough: no model is loaded, and every figure is the recorded one."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.export import write_export
from specdec_cli.cli.options import FULL, ColourAnswer, Panel, PanelSize, Plain, Quiet, Rounds, ShowRejected
from specdec_cli.errors import UsageError
from specdec_cli.pairs.pair import DEMO

if TYPE_CHECKING:
    from specdec_cli.trace import Trace
    from specdec_cli.ui.display import Look

app = typer.Typer()
EXAMPLES = """[dim]Examples:[/dim]\n
[dim]  specdec run --trace answer.jsonl 'Return the lines of a file.'[/dim]\n
[dim]  specdec replay answer.jsonl --speed 0.5[/dim]\n
[dim]  specdec replay answer.jsonl --html answer.html[/dim]"""

File = Annotated[Path, typer.Argument(metavar="FILE", help="What --trace or --json wrote.", show_default=False)]
Speed = Annotated[
    float | None,
    typer.Option(metavar="X", help="Times as fast as it was; inf does not wait.", show_default="1; inf into a pipe"),
]
Step = Annotated[
    bool,
    typer.Option(
        "--step", help="Round by round: Enter or space for the next, b for the one before, r runs on, q ends."
    ),
]
Svg = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the coloured text as a picture instead.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the coloured text as a page instead.")]


@app.command(short_help="Play a trace again, or export it as a picture or a page.", epilog=EXAMPLES)
def replay(
    file: File,
    speed: Speed = None,
    step: Step = False,
    svg: Svg = None,
    html: Html = None,
    panel: Panel = None,
    panel_size: PanelSize = FULL,
    colour_answer: ColourAnswer = True,
    rounds: Rounds = False,
    show_rejected: ShowRejected = False,
    quiet: Quiet = False,
    plain: Plain = False,
) -> None:
    """Play a trace again, or export it: accepted, rejected, discarded and corrected tokens in colour."""
    from specdec_cli.trace import read_trace
    from specdec_cli.ui.display import print_notice
    from specdec_cli.ui.export import trace_picture

    if speed is not None and not speed > 0.0:
        raise UsageError(f"--speed {speed} is not above 0", "for example: --speed 0.5")
    if step and not sys.stdin.isatty():
        raise UsageError("--step reads keys, but stdin is not a terminal", "--speed X needs no keys")
    trace = read_trace(file)
    finished = True
    if svg is None and html is None:
        from specdec_cli.ui.display import Look

        look = Look(panel=panel, panel_size=panel_size, colour_answer=colour_answer, quiet=quiet, plain=plain)
        look = replace(look, rounds=rounds, show_rejected=show_rejected)
        finished = _play(trace, speed, step, look)
    for option, target, suffix in (("--svg", svg, ".svg"), ("--html", html, ".html")):
        if target is not None:
            write_export(option, target, trace_picture(trace, suffix), shown=not quiet, plain=plain)
    if finished and trace.cut_short and not quiet:
        print_notice(sys.stderr, f"{file} ends before its last reply does", plain)
    if not finished:
        raise typer.Exit(130)


def _play(trace: Trace, speed: float | None, step: bool, look: Look) -> bool:
    """Whether it came to its end."""
    from specdec_cli.events import Failure
    from specdec_cli.session.signals import Interrupt
    from specdec_cli.ui.display import open_display, print_error, print_notice
    from specdec_cli.ui.replay import keys, paced, play, stepped

    name = DEMO if trace.replies[0].start.target == f"specdec:{DEMO}/target" else ""
    with ExitStack() as stack:
        screen = open_display(sys.stdout, sys.stderr, look, name)
        interrupt = stack.enter_context(Interrupt())
        watched = sys.stdout.isatty() or sys.stderr.isatty()
        pause = paced(speed or (1.0 if watched else math.inf), interrupt.requested)
        if step:
            if not look.quiet:
                print_notice(sys.stderr, "Enter or space: next round   b: back   r: run on   q: quit", look.plain)
            pause = stepped(stack.enter_context(keys(sys.stdin, interrupt.requested)), pause)
        display = stack.enter_context(screen)
        for reply in trace.replies:
            if not play(reply.events(), display, pause):
                return not interrupt.requested()
            if isinstance(reply.end, Failure):
                print_error(sys.stderr, reply.end, look.plain)
    return True
