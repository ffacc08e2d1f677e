"""`specdec chat`. A person gets the line editor; a pipe and a dumb terminal get plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import typer

from specdec_cli.command.command import grouped, notify
from specdec_cli.command.config import is_on_the_line
from specdec_cli.command.habits import name_first
from specdec_cli.command.load import (
    AnswerSettings,
    forbid_network,
    introduce_demo,
    load_session,
    specify,
    warn_of_unread,
    warn_of_unused_k,
)
from specdec_cli.command.machines import take_part
from specdec_cli.command.options import (
    AnswerOptions,
    DisplayOptions,
    HostOptions,
    ModelOptions,
    SamplingOptions,
    ShapeOptions,
)
from specdec_cli.command.process import as_user_error
from specdec_cli.command.values import parse_size
from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import count
from specdec_cli.core.kinds import DEFAULT_DRAFTER
from specdec_cli.core.request import parse_draft_context
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.conversation import OVERFLOWS, Conversation, Overflow

if TYPE_CHECKING:
    from specdec_cli.apps.chat.loop import Reader
    from specdec_cli.session.disk_cache import DiskCache
    from specdec_cli.session.kept_chats import Keeper
    from specdec_cli.session.transcript import Transcript

app = typer.Typer()
# The check that a chat fits into memory assumes a context of this many tokens.
ROOM_TOKENS = 4096
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
    machines: HostOptions,
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
    take_part(machines, models.kv_bits)
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
        talk(models, asked, display, transcript, keeper, not private, cache_disk, saved_to, overflow, prompt or "")


def keys_kept(display: DisplayOptions) -> AbstractContextManager[None]:
    """Whatever is typed while a pair loads or answers waits for the editor, a paste as one message."""
    from specdec_cli.terminal.suspension import no_echo

    out = _editors_terminal(display)
    return no_echo(sys.stdin, out.fileno()) if out else nullcontext()


def talk(
    models: ModelOptions,
    asked: AnswerSettings,
    display: DisplayOptions,
    transcript: Transcript,
    keeper: Keeper | None,
    history: bool,
    cache_disk: str | None = None,
    saved_to: Path | None = None,
    on_overflow: Overflow = OVERFLOWS[0],
    first: str = "",
) -> None:
    """A chat until its end, within `keys_kept`; `specdec run` without a prompt is one, too."""
    from specdec_cli.apps.chat.chat import Chat, Loaded
    from specdec_cli.apps.chat.loop import run_chat
    from specdec_cli.apps.chat.screen import ChatScreen, toolbar
    from specdec_cli.apps.chat.settings import ChatSettings
    from specdec_cli.terminal.display import TraceDisplay

    said = {"shown": display.notices, "plain": display.plain}
    warn_of_unused_k(models, asked.k, **said)
    first_spec = spec_for(transcript, models, **said)
    settings = ChatSettings(
        asked.request(first_spec), overflow=on_overflow, asked=asked.template, panel=display.panel is not False
    )
    disk = disk_cache(cache_disk, display) if keeper else None
    reserve_tokens = min(asked.asked.max_context or ROOM_TOKENS, ROOM_TOKENS)

    def open_pair(spec: PairSpec) -> Loaded:
        read = spec.reading(parse_draft_context(models.draft_context))
        session = load_session(read, models, reserve_tokens=reserve_tokens, request=settings.request, **said)
        return Loaded(spec, replace(session.pair, disk=disk).session())

    with closing(TraceDisplay(display.trace)) if display.trace else nullcontext() as trace:
        screen = ChatScreen(sys.stdout, sys.stderr, display.look, trace)
        loaded = open_pair(first_spec)
        chat: Chat
        reader = _reader(lambda width: toolbar(chat.toolbar, width), history, _editors_terminal(display))
        chat = Chat(loaded, open_pair, screen, settings, transcript, saved_to, keeper, stuck=display.answer_press)
        introduce_demo(first_spec.pair.name, **said)
        warn_of_unread(asked.template, loaded.session, **said)
        turns = transcript.conversation.turns
        continued = f" · {count(len(turns), 'turn')} continued" if turns else ""
        screen.notice(f"{loaded.summary} · /help{continued}")
        if turns and display.notices:  # where a saved conversation broke off
            screen.quote(f"> {turns[-1].user}\n\n{turns[-1].answer.text}\n")
        person = sys.stdin.isatty()
        with closing(chat):
            code = run_chat(chat, reader, person, as_user_error, first) or (0 if person else screen.trace_code)
    if code:
        raise typer.Exit(code)


def disk_cache(asked: str | None, display: DisplayOptions) -> DiskCache | None:
    """Where what is read is kept, in the size that was `asked` for, else the usual one. Raises: UsageError."""
    from specdec_cli.session.disk_cache import DiskCache
    from specdec_cli.session.disk_entries import disk_cache_folder, usual_bytes

    most_bytes = usual_bytes() if asked is None else parse_size("cache_disk", asked)

    def tell(sentence: str) -> None:
        if display.notices:
            notify(sentence, display.plain)

    return DiskCache(disk_cache_folder(), most_bytes, tell) if most_bytes else None


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


def spec_for(transcript: Transcript, models: ModelOptions, *, shown: bool, plain: bool) -> PairSpec:
    """The pair that is named, else the one of the transcript, else the default pair."""
    header = transcript.header
    if (models.pair, models.target, models.draft) != (None, None, None) or "target" not in header:
        return specify(models, shown=shown, plain=plain)
    forbid_network(models.offline)
    from specdec_cli.pairs.catalog import registry

    pair = Pair(
        name=str(header.get("pair")),
        target=header["target"],
        draft=header.get("draft"),
        target_revision=header.get("target_revision"),
        draft_revision=header.get("draft_revision"),
    )
    listed = registry().pairs.get(pair.name)
    if listed is not None and (listed.target, listed.draft) == (pair.target, pair.draft):
        pair = replace(pair, k=listed.k)
    return PairSpec(pair, models.drafter or DEFAULT_DRAFTER, "the pair of the saved conversation")


def _editors_terminal(display: DisplayOptions) -> TextIO | None:
    """Where the editor is drawn; None where no person can use it."""
    from specdec_cli.terminal.terminal import can_draw, is_terminal

    out = sys.stdout if is_terminal(sys.stdout) else sys.stderr
    usable = is_terminal(sys.stdin) and not (display.json or display.plain) and can_draw(out)
    return out if usable else None


def _reader(toolbar: Callable[[int], str], history: bool, out: TextIO | None) -> Reader:
    """The editor, drawn on `out`; without that, plain lines."""
    from specdec_cli.apps.chat.loop import LineReader, is_open

    if out is not None:
        from specdec_cli.apps.chat.commands import suggestions
        from specdec_cli.apps.chat.line_editor import LineEditor, open_history

        return LineEditor(open_history(history), toolbar, out, complete=suggestions, is_open=is_open)
    return LineReader(sys.stdin.buffer, sys.stderr if sys.stdin.isatty() else None)
