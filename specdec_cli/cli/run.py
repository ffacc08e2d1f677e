"""`specdec run`. Law: the answer alone is on stdout, and what was said is kept however the run ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.demo import introduce_demo
from specdec_cli.cli.groups import grouped
from specdec_cli.cli.opened import opened, resolved
from specdec_cli.cli.options import AnswerOptions, DisplayOptions, ModelOptions, Raw
from specdec_cli.cli.pipes import ignore_broken_pipe
from specdec_cli.cli.sampling import SamplingOptions
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.events import Event, Failure, Finish
from specdec_cli.pairs.pair import DEMO
from specdec_cli.request import Request, parse_k
from specdec_cli.session.interrupt import Interrupt

if TYPE_CHECKING:
    from specdec_cli.ui.display import Display

app = typer.Typer()
Prompt = Annotated[str | None, typer.Argument(help="The prompt; piped stdin comes before it.", show_default=False)]
EXAMPLES = """[dim]Examples:[/dim]\n
[dim]  specdec run 'Return the lines of a file.'[/dim]\n
[dim]  cat notes.txt | specdec run --raw -n 64 --json[/dim]\n
[dim]SPECDEC_PAIR, SPECDEC_K and the like set defaults.[/dim]"""


@app.command(short_help="Answer one prompt; stdout holds the answer alone.", epilog=EXAMPLES)
@grouped
@ignore_broken_pipe
def run(
    *,
    prompt: Prompt = None,
    models: ModelOptions,
    answer: AnswerOptions,
    raw: Raw = False,
    display: DisplayOptions,
    sampling: SamplingOptions,
) -> None:
    """Answer one prompt: the text on stdout, the panel and the summary on stderr."""
    length = parse_k(answer.k)
    values, bias = sampling.values(), sampling.bias()
    text = read_prompt(prompt)
    found = resolved(models, () if length is None else (length,))
    with ExitStack() as stack:
        screen = stack.enter_context(display.open(found.pair.name))
        demo = found.pair.name == DEMO
        found = replace(found, reason="") if demo else found
        reserve_tokens = answer.max_tokens + len(text) // 3
        session = opened(found, models, reserve_tokens=reserve_tokens, shown=display.notices, plain=display.plain)
        request = Request(
            max_tokens=answer.max_tokens,
            stop=tuple(answer.stop or ()),
            k=found.pair.k if length is None else length,
            drafter=found.drafter,
            max_context=answer.max_context,
            rule=sampling.rule,
            seed=sampling.seed,
            sampling=values,
            logit_bias=bias,
            stop_repetition=found.pair.stop_repetition if answer.stop_repetition is None else answer.stop_repetition,
        )
        ids = session.raw_tokens(text) if raw else session.chat_tokens(text, answer.system)
        if demo:
            introduce_demo(display)
        interrupt = stack.enter_context(Interrupt())
        stack.enter_context(display.no_echo())
        finish = show_events(session.reply(ids, request, interrupt.requested, raw), screen)
    if finish.reason == "interrupted":
        raise typer.Exit(130)


def read_prompt(argument: str | None) -> str:
    """Piped stdin first, then PROMPT.

    Raises: UsageError if nothing is there or stdin is not UTF-8.
    """
    piped = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    try:
        parts = [piped.decode("utf-8"), argument or ""]
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8: byte 0x{piped[error.start]:02x} at {error.start} of {len(piped)}",
            "convert it first: iconv -f latin1 -t utf-8 FILE | specdec run",
        ) from error
    text = "\n".join(part for part in parts if part)
    if not text.strip():
        raise UsageError("the prompt is empty: 0 characters", "give some: specdec run 'Return the lines of a file.'")
    return text


def show_events(events: Iterator[Event], display: Display) -> Finish:
    """Hand every event to `display`; a failure after the start is an event too before it goes on as an error."""
    started = False
    try:
        for event in events:
            started = True
            display.handle(event)
            if isinstance(event, Finish):
                return event
    except SpecdecError as error:
        if started:
            display.handle(Failure(error.message, error.hint, error.exit_code))
        raise
    raise SpecdecError("the session ended without a finish event", "please report this")
