"""`specdec race`. The verdict is on stdout whatever was found; texts that differ by more than rounding exit 1."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.cli.command import grouped
from specdec_cli.cli.export import require_writable, write_export
from specdec_cli.cli.load import (
    AnswerSettings,
    introduce_demo,
    load_session,
    resolve,
    warn_of_unused_k,
    without_reason,
)
from specdec_cli.cli.options import AnswerOptions, ModelOptions, SamplingOptions
from specdec_cli.cli.run import read_prompt
from specdec_cli.errors import SpecdecError
from specdec_cli.events import Failure
from specdec_cli.machine import warning_of_load
from specdec_cli.session.signals import Interrupt

if TYPE_CHECKING:
    from specdec_cli.race.events import RaceEvent

app = typer.Typer()
EXAMPLES = """specdec race --raw -n 100 'def read_lines(path):'
specdec race 'Why is the sky blue?' --export race.html --export race.svg
specdec race -k 0 'Hi'   plain against plain: what chance alone does"""


@app.command(epilog=EXAMPLES)
@grouped
def race(
    *,
    prompt: str | None = None,
    models: ModelOptions,
    answer: AnswerOptions = AnswerOptions(max_tokens=256),  # noqa: B008 - frozen
    raw: bool = False,
    export: list[Path] | None = None,
    json: bool = False,
    quiet: bool = False,
    plain: bool = False,
    sampling: SamplingOptions,
) -> None:
    """Plain against drafted decoding, side by side.

    Whether the texts are the same, and the measured ratio. Both share this machine: the lane with less compute time
    behind it goes next, so who is ahead is ahead.
    """
    asked = AnswerSettings.read(answer, sampling)
    files = tuple(export or ())
    require_writable("--export", files, (".svg", ".html"))
    text = read_prompt(prompt, command="specdec race")
    shown = not (quiet or json)
    warn_of_unused_k(models, asked.k, shown=shown, plain=plain)
    found = without_reason(resolve(models, shown=shown, plain=plain))
    doubt = warning_of_load(shown and sys.stderr.isatty())
    # Two lanes have caches of their own.
    reserve_tokens = 2 * (answer.max_tokens + len(text) // 3)
    session = load_session(found, models, reserve_tokens=reserve_tokens, shown=shown, plain=plain)
    from specdec_cli.race.events import RaceFinish
    from specdec_cli.race.race import RacePlan, same_text
    from specdec_cli.race.race import race as run_race
    from specdec_cli.ui.race import race_display, race_picture

    request = asked.request(found)
    request = same_text(request, session.effective(request)["temperature"])
    ids = session.raw_tokens(text) if raw else session.chat_tokens(text, answer.system)
    introduce_demo(found.pair.name, shown=shown, plain=plain)
    events: list[RaceEvent] = []
    with ExitStack() as stack:
        show = stack.enter_context(race_display(sys.stdout, sys.stderr, json=json, quiet=quiet, plain=plain))
        interrupt = stack.enter_context(Interrupt())
        try:
            for event in run_race(session.pair, RacePlan(request, ids, text, raw), interrupt.requested):
                events.append(event)
                show(event)
        except SpecdecError as error:
            if events:  # a failure after the start is an event too
                show(Failure(error.message, error.hint, error.exit_code))
            raise
    if doubt:
        from specdec_cli.ui.display import print_notice

        print_notice(sys.stderr, doubt, plain)
    for file in files:
        write_export("--export", file, race_picture(events, file.suffix), shown=shown, plain=plain)
    finish = events[-1]
    if isinstance(finish, RaceFinish) and finish.reason == "interrupted":
        raise typer.Exit(130)
    if isinstance(finish, RaceFinish) and finish.divergence is not None and not finish.lossless:
        raise SpecdecError(
            f"the lanes' texts differ by more than rounding: {finish.divergence.summary}",
            "specdec audit compares more texts; -k 0 decodes plainly",
        )
