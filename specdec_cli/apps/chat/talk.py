"""A chat from its options to its end: the pair is opened, the transcript goes on, and a reader hands in the lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from specdec_cli.apps.chat.chat import Chat, Loaded
from specdec_cli.apps.chat.commands import suggestions
from specdec_cli.apps.chat.loop import LineReader, Reader, is_open, run_chat
from specdec_cli.apps.chat.screen import ChatScreen, toolbar
from specdec_cli.apps.chat.settings import ChatSettings
from specdec_cli.command.command import notify
from specdec_cli.command.load import (
    AnswerSettings,
    introduce_demo,
    load_session,
    specify,
    warn_of_unread,
    warn_of_unused_k,
)
from specdec_cli.command.options import DisplayOptions, ModelOptions
from specdec_cli.command.process import as_user_error
from specdec_cli.command.values import parse_size
from specdec_cli.core.format import count
from specdec_cli.core.kinds import DEFAULT_DRAFTER
from specdec_cli.core.request import parse_draft_context
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.conversation import OVERFLOWS, Overflow
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import disk_cache_folder, usual_bytes
from specdec_cli.session.kept_chats import Keeper
from specdec_cli.session.transcript import Transcript
from specdec_cli.terminal.display import TraceDisplay

# The check that a chat fits into memory assumes a context of this many tokens.
ROOM_TOKENS = 4096


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
) -> int:
    """A chat until its end, within `keys_kept`, and its exit code; `specdec run` without a prompt is one, too."""
    said = {"shown": display.notices, "plain": display.plain}
    warn_of_unused_k(models, asked.k, **said)
    first_spec = spec_for(transcript, models, **said)
    settings = ChatSettings(
        asked.request(first_spec), overflow=on_overflow, template=asked.template, panel=display.panel is not False
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
        reader = _reader(lambda width: toolbar(chat.toolbar, width), history, display.editors_terminal)
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
            return run_chat(chat, reader, person, as_user_error, first) or (0 if person else screen.trace_code)


def disk_cache(asked: str | None, display: DisplayOptions) -> DiskCache | None:
    """Where what is read is kept, in the size that was `asked` for, else the usual one. Raises: UsageError."""
    most_bytes = usual_bytes() if asked is None else parse_size("cache_disk", asked)

    def tell(sentence: str) -> None:
        if display.notices:
            notify(sentence, display.plain)

    return DiskCache(disk_cache_folder(), most_bytes, tell) if most_bytes else None


def spec_for(transcript: Transcript, models: ModelOptions, *, shown: bool, plain: bool) -> PairSpec:
    """The pair that is named, else the one of the transcript, else the default pair."""
    header = transcript.header
    if (models.pair, models.target, models.draft) != (None, None, None) or "target" not in header:
        return specify(models, shown=shown, plain=plain)
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


def _reader(toolbar: Callable[[int], str], history: bool, out: TextIO | None) -> Reader:
    """The editor, drawn on `out`; without that, plain lines."""
    if out is not None:
        from specdec_cli.apps.chat.line_editor import LineEditor, open_history  # a pipe needs none

        return LineEditor(open_history(history), toolbar, out, complete=suggestions, is_open=is_open)
    return LineReader(sys.stdin.buffer, sys.stderr if sys.stdin.isatty() else None)
