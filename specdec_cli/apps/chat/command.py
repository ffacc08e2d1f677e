"""`specdec chat`. A person gets the line editor; a pipe and a dumb terminal get plain lines."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from specdec_cli.command.command import grouped, notify
from specdec_cli.command.config import is_on_the_line
from specdec_cli.command.habits import name_first
from specdec_cli.command.load import AnswerSettings
from specdec_cli.command.machines import take_part
from specdec_cli.command.options import (
    AnswerOptions,
    DisplayOptions,
    ModelOptions,
    SamplingOptions,
    ShapeOptions,
)
from specdec_cli.core.errors import UsageError
from specdec_cli.session.conversation import OVERFLOWS, Conversation, Overflow

if TYPE_CHECKING:
    from specdec_cli.session.transcript import Transcript

app = typer.Typer()
ANSWER = AnswerOptions(max_tokens=2048)
EXAMPLES = r"""specdec chat -s 'You answer in one sentence.' --save talk.jsonl
specdec chat qwen3-8b 'What does this file do?'
specdec chat --resume talk.jsonl
specdec chat -c
printf 'Hi\nAnd then?\n' | specdec chat -q"""


@app.command(epilog=EXAMPLES)
@grouped
def chat(
    *,
    context: typer.Context,
    model: str | None = None,
    prompt: str | None = None,
    last: bool = False,
    preset: str | None = None,
    models: ModelOptions,
    hosts: str | None = None,
    answer: AnswerOptions = ANSWER,
    shape: ShapeOptions,
    save: Path | None = None,
    resume: Path | None = None,
    display: DisplayOptions,
    sampling: SamplingOptions,
    private: bool = False,
    cache_disk: str | None = None,
    on_overflow: str = OVERFLOWS[0],
) -> None:
    """Talk over many turns; what was read is kept."""
    take_part(hosts, models.kv_bits)
    models, prompt = name_first(context, models, model, prompt)
    if prompt is not None and not prompt.strip():
        raise UsageError(f"the first message is empty: {len(prompt)} characters", "leave it out: specdec chat")
    from specdec_cli.session.kept_chats import Keeper

    kept = kept_file(last, resume, display)
    # A conversation keeps its own system message, unless this line has another.
    begun = kept or resume
    system = answer.system if begun is None or is_on_the_line(context, "system") else None
    transcript = open_transcript(begun, save, system, display.plain)
    saved_to = save or (resume if kept is None else None)
    keeper = None if saved_to or private else Keeper(kept, transcript.id, display.notices)
    asked, overflow = AnswerSettings.read(answer, sampling, shape), cast(Overflow, on_overflow)
    with keys_kept(display):
        from specdec_cli.apps.chat.talk import talk  # mlx takes seconds

        code = talk(
            models, asked, display, transcript, keeper, not private, cache_disk, saved_to, overflow, prompt or ""
        )
    if code:
        raise typer.Exit(code)


def keys_kept(display: DisplayOptions) -> AbstractContextManager[None]:
    """Whatever is typed while a pair loads or answers waits for the editor, a paste as one message."""
    from specdec_cli.terminal.suspension import no_echo

    out = display.editors_terminal
    return no_echo(sys.stdin, out.fileno()) if out else nullcontext()


def kept_file(last: bool, resume: Path | None, display: DisplayOptions) -> Path | None:
    """The kept chat to be continued: the last one, or that of a number. Raises: UsageError."""
    from specdec_cli.session.kept_chats import kept_chat, last_chat

    if last and resume is not None:
        raise UsageError(f"--continue and --resume {resume} both name a conversation", "give one of the two")
    if last:
        return last_chat(lambda sentence: notify(sentence, display.plain) if display.notices else None)
    number = "" if resume is None or resume.exists() else str(resume)
    return kept_chat(int(number)) if number.isdecimal() else None


def open_transcript(resume: Path | None, save: Path | None, system: str | None, plain: bool = False) -> Transcript:
    """A new conversation, or the one to be continued. Raises: UsageError."""
    from specdec_cli.session.transcript import Transcript, load, require_file

    if save is not None:
        require_file(save)
    if resume is None:
        if save is not None and save.exists() and save.stat().st_size:
            raise UsageError(f"--save {save} exists already", f"continue it: specdec chat --resume {save}")
        return Transcript(Conversation(system))
    found = load(resume)
    if found.left_out:
        notify(found.left_out, plain)
    return replace(found, conversation=replace(found.conversation, system=system)) if system else found
