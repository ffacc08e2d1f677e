"""`specdec run`. The answer alone is on stdout, and the text so far is kept however the run ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from typer.core import TyperGroup

from specdec_cli.command.command import grouped, notify
from specdec_cli.command.habits import name_first
from specdec_cli.command.load import (
    AnswerSettings,
    introduce_demo,
    load_session,
    specify,
    warn_of_unread,
    warn_of_unsent,
    warn_of_unused_k,
    without_reason,
)
from specdec_cli.command.machines import take_part
from specdec_cli.command.options import (
    AnswerOptions,
    DisplayOptions,
    ModelOptions,
    SamplingOptions,
    ShapeOptions,
)
from specdec_cli.command.prompt import file_text, read_prompt
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.events import Event, Failure, Finish
from specdec_cli.core.kinds import DEFAULT_DRAFTER, NONE
from specdec_cli.core.request import require_lookups
from specdec_cli.session.signals import Interrupt
from specdec_cli.system.machine import warning_of_load

if TYPE_CHECKING:
    from specdec_cli.terminal.display import OnEvent

app = typer.Typer()
EXAMPLES = """specdec run 'Return the lines of a file.'
specdec run qwen3-8b 'Why is the sky blue?'
cat notes.txt | specdec run --raw -n 64 --json"""


@app.command(epilog=EXAMPLES)
@grouped
def run(
    *,
    context: typer.Context,
    model: str | None = None,
    prompt: str | None = None,
    file: Path | None = None,
    preset: str | None = None,
    models: ModelOptions,
    hosts: str | None = None,
    answer: AnswerOptions,
    shape: ShapeOptions,
    predict: Path | None = None,
    raw: bool = False,
    display: DisplayOptions,
    sampling: SamplingOptions,
) -> None:
    """Answer one prompt; stdout holds the answer alone.

    The panel and the summary are on stderr. Without a prompt it is a chat.
    """
    take_part(hosts, models.kv_bits)
    models, prompt = name_first(context, models, model, prompt)
    nothing_asked = (prompt, file, predict, raw, display.json) == (None, None, None, False, False)
    chat = cast(TyperGroup, context.find_root().command).commands.get("chat")
    if chat and nothing_asked and sys.stdin.isatty() and sys.stdout.isatty():
        return chat_instead(chat, context, models, preset)
    asked = AnswerSettings.read(answer, sampling, shape)
    text, predicted = read_prompt(prompt, file), file_text(predict, "--predict", "name a file of what you expect")
    said: dict[str, Any] = {"shown": display.notices, "plain": display.plain}
    warn_of_unused_k(models, asked.k, **said)
    spec = without_reason(specify(models, asked.ks, raw=raw, **said))
    if predicted and models.drafter is None and spec.drafter != NONE.name:
        spec = replace(spec, drafter=DEFAULT_DRAFTER)  # the pair's own may look nothing up
    request = replace(asked.request(spec), predict=predicted)
    require_lookups(predicted, request.drafter, request.k)
    watched = display.is_watched(sys.stderr)
    doubt = warning_of_load(watched)
    with ExitStack() as stack:
        show = stack.enter_context(display.open(spec.pair.name))
        needed = answer.max_tokens + len(text) // 3
        reserve_tokens = min(needed, answer.max_context or needed)
        began = time.monotonic()
        session = load_session(spec, models, reserve_tokens=reserve_tokens, request=request, **said)
        if display.verbose:
            notify(f"loaded in {time.monotonic() - began:.1f} s", display.plain)
        ids = session.pair.text_tokens(text) if raw else session.pair.chat_tokens(text, answer.system, asked.template)
        if raw:
            warn_of_unsent(context, **said)
        else:
            warn_of_unread(asked.template, session, **said)
        introduce_demo(spec.pair.name, **said)
        if watched:
            _warn_of_reference_blas(display.plain)
        interrupt = stack.enter_context(Interrupt(stuck=display.answer_press))
        stack.enter_context(display.no_echo())
        events = session.reply(ids, request, interrupt.requested, raw, measures_last=watched)
        finish = show_events(events, show)
    if doubt and finish.stats.get("estimated_speedup"):
        from specdec_cli.terminal.display import print_notice

        print_notice(sys.stderr, doubt, display.plain)
    if finish.reason == "interrupted":
        raise typer.Exit(130)
    return None


def chat_instead(command: Any, context: typer.Context, models: ModelOptions, preset: str | None) -> None:
    """A chat with what this line says; the config and the variables are read for it anew."""
    chat = command.make_context("chat", ["--preset", preset] if preset else [], parent=context.parent)
    for name in chat.params:
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE":
            chat.params[name] = context.params[name]
            chat.set_parameter_source(name, source)
    chat.params |= {"model": None, "pair": models.pair, "target": models.target, "draft": models.draft}
    with chat:
        command.invoke(chat)


def _warn_of_reference_blas(plain: bool) -> None:
    from specdec_cli.system import blas
    from specdec_cli.terminal.display import print_notice

    if blas.load() == blas.REFERENCE:
        print_notice(sys.stderr, f"mlx computes with its slow reference BLAS here: {blas.INSTALL}", plain)


def show_events(events: Iterator[Event], show: OnEvent) -> Finish:
    """Show every event; a failure after the start is an event too before it goes on as an error."""
    started = False
    try:
        for event in events:
            started = True
            show(event)
            if isinstance(event, Finish):
                return event
    except SpecdecError as error:
        if started:
            show(Failure(error.message, error.hint, error.exit_code))
            error.told = True
        raise
    raise SpecdecError("the session ended without a finish event", "please report this")
