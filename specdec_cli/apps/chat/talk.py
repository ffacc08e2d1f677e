"""A chat from its options to its end: the pair is opened, the transcript goes on, line after line is answered.

A message is sent as typed, except for triple quotes around it. A line that begins with a slash is a command. A failure
ends one line, not the chat.
"""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

from specdec_cli.apps.chat.chat import Chat, Loaded
from specdec_cli.apps.chat.commands import Leave, run_command, suggestions
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
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.format import count
from specdec_cli.core.request import parse_draft_context
from specdec_cli.core.textfile import as_utf8, decode_text, in_wide_units
from specdec_cli.pairs.catalog import findable, is_downloaded, registry
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.conversation import OVERFLOWS, Overflow
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import disk_cache_folder, usual_bytes
from specdec_cli.session.kept_chats import Keeper
from specdec_cli.session.transcript import Transcript
from specdec_cli.terminal.display import TraceFile

# The check that a chat fits into memory assumes a context of this many tokens.
ROOM_TOKENS = 4096
FENCE = '"""'
INTERRUPTED = 130
SAVED = "the pair of the saved conversation"
# What comes sooner after a line was pasted with it.
PASTE_SECONDS = 0.05


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
    said: dict[str, Any] = {"shown": display.notices, "plain": display.plain}
    warn_of_unused_k(models, asked.k, **said)
    first_spec = spec_for(transcript, models, **said)
    settings = ChatSettings(
        asked.request(first_spec),
        overflow=on_overflow,
        template=asked.template,
        panel=display.panel is not False,
        drafter=models.drafter,
        asked_k=asked.k,
        asked_stop_repetition=asked.stop_repetition,
    )
    disk = disk_cache(cache_disk, display) if keeper else None
    reserve_tokens = min(asked.asked.max_context or ROOM_TOKENS, ROOM_TOKENS)

    def open_pair(spec: PairSpec) -> Loaded:
        read = spec.reading(parse_draft_context(models.draft_context))
        session = load_session(read, models, reserve_tokens=reserve_tokens, request=settings.request, **said)
        return Loaded(spec, replace(session.pair, disk=disk).session())

    with closing(TraceFile(display.trace)) if display.trace else nullcontext() as trace:
        screen = ChatScreen(sys.stdout, sys.stderr, display, trace)
        # The chat alone holds the pair: another name for it would keep it in memory beside the next one.
        answer = display.answer_press
        chat = Chat(open_pair(first_spec), open_pair, screen, settings, transcript, saved_to, keeper, stuck=answer)
        reader = _reader(lambda width: toolbar(chat.toolbar, width), history, display.editors_terminal)
        introduce_demo(first_spec.pair.name, **said)
        warn_of_unread(asked.template, chat.loaded.session, **said)
        turns = transcript.conversation.turns
        continued = f" · {count(len(turns), 'turn')} continued" if turns else ""
        screen.notice(f"{chat.loaded.summary} · /help{continued}")
        if turns and display.notices:  # where a saved conversation broke off
            screen.quote(f"> {turns[-1].user}\n\n{turns[-1].answer.text}\n")
        person = sys.stdin.isatty()
        with closing(chat):
            return run_chat(chat, reader, person, as_user_error, first) or (0 if person else screen.trace_code)


def disk_cache(asked: str | None, display: DisplayOptions) -> DiskCache | None:
    """Where what is read is kept, in the size that was `asked` for, else the usual one. Raises: UsageError."""
    most_bytes = usual_bytes() if asked is None else parse_size("--cache-disk", asked)

    def tell(sentence: str) -> None:
        if display.notices:
            notify(sentence, display.plain)

    return DiskCache(disk_cache_folder(), most_bytes, tell) if most_bytes else None


def spec_for(transcript: Transcript, models: ModelOptions, *, shown: bool, plain: bool) -> PairSpec:
    """The pair that is named, else the one of the transcript, else the default pair.

    Where the transcript's is listed, it is as it is listed: how it drafts stands nowhere else. A commit that is no
    longer here gives way to the one that is.
    """
    header = transcript.header
    if (models.pair, models.target, models.draft) != (None, None, None) or "target" not in header:
        return specify(models, shown=shown, plain=plain)
    adapters: dict[str, Any] = {name: header.get(name) for name in ("target_adapter", "draft_adapter")}
    pair, reason = Pair(str(header.get("pair")), header["target"], header.get("draft"), **adapters), SAVED
    listed = registry().pairs.get(pair.name)
    if listed is not None:  # one with a target alone has the draft that was found
        listed = replace(listed, draft=pair.draft) if listed.has_target_alone else listed
        pair = listed if _found(listed) == _found(pair) else pair
    revisions: dict[str, Any] = {}
    for model in ("target", "draft"):
        if (commit := header.get(f"{model}_revision")) is None or is_downloaded(header.get(model), commit):
            revisions[f"{model}_revision"] = commit
        else:
            reason += f"; {header[model]} is another now: its commit {commit[:7]} is not here"
    return replace(PairSpec.of(replace(pair, **revisions), models.drafter), reason=reason)


def _found(pair: Pair) -> list[str]:
    """Its models, each as it is found from any folder."""
    return [name for name, _ in findable(pair).models]


def _reader(toolbar: Callable[[int], str], history: bool, out: TextIO | None) -> Reader:
    """The editor, drawn on `out`; without that, plain lines."""
    if out is not None:
        from specdec_cli.apps.chat.line_editor import LineEditor, open_history  # a pipe needs none

        return LineEditor(open_history(history), toolbar, out, complete=suggestions, is_open=is_open)
    return LineReader(sys.stdin.buffer, sys.stderr if sys.stdin.isatty() else None)


def unfenced(text: str) -> str:
    """`text` without triple quotes around it."""
    inner = text.strip()
    if not inner.startswith(FENCE):
        return text
    return inner.removeprefix(FENCE).removesuffix(FENCE).strip("\n")


def is_open(text: str) -> bool:
    """Whether `text` begins with triple quotes that are still open."""
    inner = text.strip()
    return inner.startswith(FENCE) and not (len(inner) >= 2 * len(FENCE) and inner.endswith(FENCE))


class Reader(Protocol):
    """The source of messages."""

    def read(self, text: str, refusal: str = "") -> str:
        """The next message or command; `text` is the editor's initial text, and `refusal` why it was not sent.

        Raises: EOFError at the end, KeyboardInterrupt on Ctrl-C, UsageError for input that is not UTF-8.
        """


def run_chat(
    chat: Chat, reader: Reader, lenient: bool, explained: Callable[[Exception], SpecdecError], first: str = ""
) -> int:
    """Runs until the end of input, /exit, or Ctrl-C twice within a second (130).

    `first` is sent before anything is read.
    Returns the exit code of the first failure, else 0; `lenient` returns 0 after failures, too: a person saw each.
    `explained` makes any failure one of ours, or raises it where the chat cannot go on.
    """
    code, text, refusal = 0, "", ""
    while True:
        line = ""
        try:
            if first:
                line, first = first, ""
                chat.screen.notice(f"> {line}")
            else:
                line = reader.read(text, refusal)
            text = refusal = ""
            if line.startswith("/"):
                text = run_command(chat, line)
            elif unfenced(line).strip():
                text = chat.ask(unfenced(line))
        except (EOFError, Leave):
            return code or (0 if lenient else chat.unsaved_code)
        except KeyboardInterrupt:
            text = ""
            if chat.presses.again() or chat.lost:
                return INTERRUPTED
            chat.screen.notice("Ctrl-D or /exit leaves")
        except Exception as error:  # a chat outlives every failure of one turn: the conversation is worth more
            if chat.lost or (not line and not isinstance(error, SpecdecError)):  # reading failed, and would again
                raise
            failure = explained(error)
            chat.screen.error(failure)
            text = "" if line.startswith("/") else line
            refusal = failure.message if text else ""  # a long text hides the error, which stands above it
            code = code or (0 if lenient else failure.exit_code)
            del failure  # its traceback holds the pair, which would stay beside another one


class LineReader:
    """One message a line, for pipes and terminals that cannot move a cursor; of a terminal, one message a paste."""

    def __init__(self, source: BinaryIO, prompt: TextIO | None) -> None:
        """`prompt` is the stream for "> ", None for a pipe."""
        self._source, self._prompt = source, prompt

    def read(self, text: str, refusal: str = "") -> str:
        read = self._line("> ")
        while self._prompt and not read.startswith("/") and self._waiting():
            read += "\n" + self._line("")
        while is_open(read):
            try:
                read += "\n" + self._line("… ")
            except EOFError:
                break
        return read

    def _waiting(self) -> bool:
        """Whether more lines are there already, which nobody types that fast. A terminal hands out one at a time."""
        with suppress(OSError, ValueError):
            return bool(select.select([self._source], [], [], PASTE_SECONDS)[0])
        return False

    def _line(self, prompt: str) -> str:
        if self._prompt:
            self._prompt.write(prompt)
            self._prompt.flush()
        line = self._source.readline()
        if not line:
            raise EOFError
        try:
            if in_wide_units(line):  # its lines end otherwise
                self._source = io.BytesIO(as_utf8(line + self._source.read()))
                line = self._source.readline()
            return decode_text(line).rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"the line is not UTF-8: byte 0x{line[error.start]:02x} at {error.start} of {len(line)}"
            raise UsageError(message, "convert it first: iconv -f latin1 -t utf-8 FILE | specdec chat") from error
