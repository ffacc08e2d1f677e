"""`specdec race` and `specdec demo`, a race of the pair that ships inside.

The verdict is on stdout whatever was found; texts that differ by more than rounding exit 1.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.command.command import grouped, notify
from specdec_cli.command.export import require_writable, write_export
from specdec_cli.command.load import (
    AnswerSettings,
    introduce_demo,
    load_session,
    specify,
    warn_of_unsent,
    warn_of_unused_k,
    without_reason,
)
from specdec_cli.command.options import AnswerOptions, ModelOptions, SamplingOptions
from specdec_cli.command.prompt import read_prompt
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.events import Failure
from specdec_cli.core.kinds import COUPLED, DEFAULT_RULE
from specdec_cli.core.request import Request
from specdec_cli.pairs.pair import DEMO
from specdec_cli.session.signals import Interrupt
from specdec_cli.system.machine import warning_of_load

if TYPE_CHECKING:
    from specdec_cli.apps.race.events import RaceEvent

app = typer.Typer()
# The demo pair knows only Python.
DEMO_PROMPT = "def parse_date(text):"
DEMO_TOKENS = 100
EXAMPLES = """specdec race --raw -n 100 'def read_lines(path):'
specdec race 'Why is the sky blue?' --export race.svg
specdec race -k 0 'Hi'   plain against plain: what chance alone does"""


@app.command(epilog=EXAMPLES)
@grouped
def race(
    *,
    context: typer.Context,
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
    same_text(asked.asked, sampling.temp or 0.0)  # refused before anything is loaded
    require_writable("--export", export or (), (".svg",))
    text = read_prompt(prompt, command="specdec race")
    if raw:
        warn_of_unsent(context, shown=not (quiet or json), plain=plain)
    events = run_race(models, asked, text, raw, answer.system, json=json, quiet=quiet, plain=plain)
    for file in export or ():
        from specdec_cli.apps.race.screen import race_picture

        write_export("--export", file, race_picture(events), shown=not (quiet or json), plain=plain)
    require_lossless(events)


@app.command()
@grouped
def demo(*, plain: bool = False) -> None:
    """See speculative decoding work, with no download.

    It is a race of two tiny models that ship inside specdec, and what it shows.
    """
    from specdec_cli.apps.race.screen import lesson
    from specdec_cli.pairs import catalog, choose
    from specdec_cli.terminal.display import print_columns, print_notice

    asked = AnswerSettings.read(AnswerOptions(max_tokens=DEMO_TOKENS), SamplingOptions(temp=0.0))
    events = run_race(ModelOptions(pair=DEMO), asked, DEMO_PROMPT, raw=True, plain=plain)
    require_lossless(events)
    print_notice(sys.stdout, "", plain)
    print_columns(sys.stdout, lesson(events, choose.first_step(catalog.registry()).hint), plain)


def run_race(
    models: ModelOptions,
    asked: AnswerSettings,
    prompt: str,
    raw: bool,
    system: str | None = None,
    *,
    json: bool = False,
    quiet: bool = False,
    plain: bool,
) -> list[RaceEvent]:
    """All events of one race, shown as they come; if `raw`, both lanes continue the prompt. Raises: SpecdecError."""
    shown = not (quiet or json)
    warn_of_unused_k(models, asked.k, shown=shown, plain=plain)
    spec = without_reason(specify(models, raw=True, shown=shown, plain=plain))
    doubt = warning_of_load(shown and sys.stderr.isatty())
    needed = asked.asked.max_tokens + len(prompt) // 3
    # Two lanes have caches of their own, and the context that fits would be that of one.
    reserve_tokens, without = 2 * min(needed, asked.asked.max_context or needed), ["--max-context"]
    session = load_session(spec, models, reserve_tokens=reserve_tokens, shown=shown, plain=plain, without=without)
    from specdec_cli.apps.race import race as lanes
    from specdec_cli.apps.race.screen import race_display

    request = asked.request(spec)
    rendered = partial(session.pair.chat_tokens, system=system, values=asked.template)
    request = same_text(request, session.pair.effective(request)["temperature"])
    ids = session.pair.text_tokens(prompt) if raw else rendered(prompt)
    introduce_demo(spec.pair.name, shown=shown, plain=plain)
    events: list[RaceEvent] = []
    with ExitStack() as stack:
        show = stack.enter_context(race_display(sys.stdout, sys.stderr, json=json, quiet=quiet, plain=plain))
        interrupt = stack.enter_context(Interrupt())
        plan = lanes.RacePlan(request, ids, prompt, raw)
        try:
            for event in lanes.race(session.pair, plan, interrupt.requested):
                events.append(event)
                show(event)
        except SpecdecError as error:
            if events:  # a failure after the start is an event too
                show(Failure(error.message, error.hint, error.exit_code))
                error.told = True
            raise
    if doubt:
        notify(doubt, plain)
    return events


def same_text(request: Request, temperature: float) -> Request:
    """`request` such that what is drafted cannot change its text: above temperature 0 coupled, under a seed.

    Raises: UsageError for another rule: under it every draft makes a text of its own.
    """
    if temperature == 0.0:
        return request
    if request.rule not in (DEFAULT_RULE, COUPLED.name):
        raise UsageError(
            f"--rule {request.rule} at temperature {temperature:g} gives each lane a text of its own",
            "leave --rule out: a race uses coupled, one seed for both lanes; or --temp 0",
        )
    seed = secrets.randbits(31) if request.seed is None else request.seed
    return replace(request, rule=COUPLED.name, seed=seed)


def require_lossless(events: Sequence[RaceEvent]) -> None:
    """Raises: typer.Exit after Ctrl-C, SpecdecError where the lanes' texts differ by more than rounding."""
    from specdec_cli.apps.race.events import RaceFinish

    finish = events[-1]
    if isinstance(finish, RaceFinish) and finish.reason == "interrupted":
        raise typer.Exit(130)
    if isinstance(finish, RaceFinish) and finish.divergence is not None and not finish.lossless:
        raise SpecdecError(
            f"the lanes' texts differ by more than rounding: {finish.divergence.summary}",
            "specdec audit compares more texts; -k 0 decodes plainly",
        )
