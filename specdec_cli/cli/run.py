"""`specdec run`. The answer alone is on stdout, and the text so far is kept however the run ends."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.cli.chat import ANSWER, keys_kept, open_transcript, talk
from specdec_cli.cli.command import grouped, notify
from specdec_cli.cli.habits import name_first
from specdec_cli.cli.load import (
    AnswerSettings,
    introduce_demo,
    load_session,
    specify,
    warn_of_unread,
    warn_of_unused_k,
    without_reason,
)
from specdec_cli.cli.options import (
    AnswerOptions,
    DisplayOptions,
    HostOptions,
    ModelOptions,
    SamplingOptions,
    ShapeOptions,
)
from specdec_cli.cli.several import take_part
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.events import Event, Failure, Finish
from specdec_cli.core.kinds import DEFAULT_DRAFTER, NONE
from specdec_cli.core.readfile import read_file
from specdec_cli.core.request import require_lookups
from specdec_cli.core.textfile import decode_text
from specdec_cli.session.signals import Interrupt
from specdec_cli.system.link import DESCRIPTOR
from specdec_cli.system.machine import warning_of_load

if TYPE_CHECKING:
    from specdec_cli.ui.display import Display

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
    machines: HostOptions,
    answer: AnswerOptions,
    shape: ShapeOptions,
    predict: Path | None = None,
    raw: bool = False,
    display: DisplayOptions,
    sampling: SamplingOptions,
    private: bool = False,
) -> None:
    """Answer one prompt; stdout holds the answer alone.

    The panel and the summary are on stderr. Without a prompt it is a chat.
    """
    take_part(machines, models.kv_bits)
    models, prompt = name_first(context, models, model, prompt)
    nothing_asked = (prompt, file, predict, raw, display.json) == (None, None, None, False, False)
    if nothing_asked and sys.stdin.isatty() and sys.stdout.isatty():
        from specdec_cli.chat.kept import Keeper

        if answer.max_tokens == AnswerOptions().max_tokens:
            answer = replace(answer, max_tokens=ANSWER.max_tokens)
        asked = AnswerSettings.read(answer, sampling, shape)
        keeper = None if private else Keeper(tells=display.notices)
        with keys_kept(display):
            talk(models, asked, display, open_transcript(None, None, answer.system), keeper, not private)
        return
    asked = AnswerSettings.read(answer, sampling, shape)
    text, predicted = read_prompt(prompt, file), _file_text(predict, "--predict", "name a file of what you expect")
    said = {"shown": display.notices, "plain": display.plain}
    warn_of_unused_k(models, asked.k, **said)
    spec = without_reason(specify(models, asked.ks, raw=raw, **said))
    if predicted and models.drafter is None and spec.drafter != NONE.name:
        spec = replace(spec, drafter=DEFAULT_DRAFTER)  # the pair's own may look nothing up
    request = replace(asked.request(spec), predict=predicted)
    require_lookups(predicted, request.drafter, request.k)
    doubt = warning_of_load(display.notices and sys.stderr.isatty())
    with ExitStack() as stack:
        screen = stack.enter_context(display.open(spec.pair.name))
        reserve_tokens = answer.max_tokens + len(text) // 3
        began = time.monotonic()
        session = load_session(spec, models, reserve_tokens=reserve_tokens, request=request, **said)
        if display.verbose:
            notify(f"loaded in {time.monotonic() - began:.1f} s", display.plain)
        ids = session.pair.text_tokens(text) if raw else session.pair.chat_tokens(text, answer.system, asked.template)
        warn_of_unread(asked.template, session, **said)
        introduce_demo(spec.pair.name, **said)
        if display.notices and sys.stderr.isatty():
            _warn_of_reference_blas(display.plain)
        interrupt = stack.enter_context(Interrupt(stuck=display.answer_press))
        stack.enter_context(display.no_echo())
        finish = show_events(session.reply(ids, request, interrupt.requested, raw), screen)
    if doubt and finish.stats.get("estimated_speedup"):
        from specdec_cli.ui.display import print_notice

        print_notice(sys.stderr, doubt, display.plain)
    if finish.reason == "interrupted":
        raise typer.Exit(130)


def _warn_of_reference_blas(plain: bool) -> None:
    from specdec_cli.system import blas
    from specdec_cli.ui.display import print_notice

    if blas.load() == blas.REFERENCE:
        print_notice(sys.stderr, f"mlx computes with its slow reference BLAS here: {blas.INSTALL}", plain)


def read_prompt(argument: str | None, file: Path | None = None, command: str = "specdec run") -> str:
    """Piped stdin first, then the text of `file`, then PROMPT, on lines of their own; the hints are for `command`.

    Raises: UsageError if nothing is there, or if what is there cannot be read as UTF-8.
    """
    # mlx.launch gives each rank an input that never ends.
    watched = sys.stdin.isatty() or (argument is not None and "MLX_RANK" in os.environ and DESCRIPTOR not in os.environ)
    if watched and argument is None and file is None:
        raise UsageError("there is no prompt", f"{command} 'Return the lines of a file.', or talk: specdec chat")
    piped = b"" if watched else sys.stdin.buffer.read()
    text = "\n".join(part for part in (_decoded(piped, "stdin", "FILE"), _file_text(file), argument or "") if part)
    if not text.strip():
        raise UsageError("the prompt is empty: 0 characters", f"give some: {command} 'Return the lines of a file.'")
    return text


def _file_text(file: Path | None, option: str = "--file", hint: str = "name a file with the prompt") -> str:
    if file is None:
        return ""
    try:
        return _decoded(read_file(file, piped=True), str(file), str(file))
    except OSError as error:
        raise UsageError(f"{option} {file} cannot be read: {error.strerror}", hint) from error


def _decoded(data: bytes, source: str, file: str) -> str:
    try:
        return decode_text(data)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8: byte 0x{data[error.start]:02x} at {error.start} of {len(data)}",
            f"convert it first: iconv -f latin1 -t utf-8 {shlex.quote(str(file))} | specdec run",
        ) from error


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
            error.told = True
        raise
    raise SpecdecError("the session ended without a finish event", "please report this")
