"""The chat's loop: read a line, answer it or run it. A failure ends one line, not the chat.

A message is sent as typed, except for triple quotes around it. A line that begins with a slash is a command.
"""

from __future__ import annotations

import io
import select
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Protocol, TextIO

from specdec_cli.apps.chat.chat import Chat
from specdec_cli.apps.chat.commands import Leave, run_command
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.textfile import as_utf8, decode_text, in_wide_units

FENCE = '"""'


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


INTERRUPTED = 130


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
            if chat.presses.again():
                return INTERRUPTED
            chat.screen.notice("Ctrl-D or /exit leaves")
        except Exception as error:  # a chat outlives every failure of one turn: the conversation is worth more
            if not line and not isinstance(error, SpecdecError):  # reading failed, and would again
                raise
            failure = explained(error)
            chat.screen.error(failure)
            text = "" if line.startswith("/") else line
            refusal = failure.message if text else ""  # a long text hides the error, which stands above it
            code = code or (0 if lenient else failure.exit_code)


PASTE_SECONDS = 0.05


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
