"""The input line of a chat, the only module that imports prompt_toolkit. A paste is one message; history is private."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.styles import Style

from specdec_cli.core.readfile import open_file
from specdec_cli.terminal.terminal import safe

STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "dim",
        "bottom-toolbar.refusal": "bold ansiyellow",
    }
)


class PrivateHistory(FileHistory):
    """Typed lines in a file that only its owner can read.

    Raises: OSError if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600))
        open_file(path).close()  # a pipe holds no history
        path.chmod(0o600)
        super().__init__(path)

    def store_string(self, string: str) -> None:
        """Keeps a line; a full disk loses it from the file, and nothing else."""
        with suppress(OSError):
            super().store_string(characters(string))


def open_history(kept: bool) -> History:
    """The history file, or memory only where a file is not wanted or not possible."""
    with suppress(OSError):
        if kept:
            return PrivateHistory(platformdirs.user_state_path("specdec") / "history")
    return InMemoryHistory()


def characters(text: str) -> str:
    """`text` with U+FFFD for each byte that was typed or pasted and is not UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Complete = Callable[[str], Sequence[tuple[str, int, str]]]
"""The completions of the text typed so far: words, each for the last so many characters typed, with a description."""


class LineEditor:
    """Reads messages and commands.

    `toolbar` makes the bottom line for a width in columns; `is_open` tells whether Enter begins a new line.
    """

    def __init__(
        self,
        history: History,
        toolbar: Callable[[int], str],
        out: TextIO,
        keys: Input | None = None,
        output: Output | None = None,
        *,
        complete: Complete,
        is_open: Callable[[str], bool],
    ) -> None:
        self._output = output or create_output(out)
        self._toolbar = toolbar
        self._given = self._refusal = ""
        sign = "❯ " if "utf" in (getattr(out, "encoding", None) or "").lower() else "> "
        self._session: PromptSession[str] = PromptSession(
            [("class:prompt", sign)],
            history=history,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_keys(is_open),
            completer=_Commands(complete),
            complete_while_typing=Condition(lambda: self._session.default_buffer.text.startswith("/")),
            bottom_toolbar=self._bottom,
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".md",
            style=STYLE,
            include_default_pygments_style=False,
            input=keys,
            output=self._output,
        )

    def read(self, text: str, refusal: str = "") -> str:
        """The next message or command; the editor starts with `text`. Raises: EOFError, KeyboardInterrupt.

        As long as `text` is unchanged the bottom line says `refusal`: a long text fills the screen.
        """
        self._given, self._refusal = safe(text), safe(refusal)  # either may come from a file
        # A press before the terminal gives keys would end prompt_toolkit amid the making of its loop.
        before = signal.signal(signal.SIGINT, _ignore)
        marks = self._output.enable_bracketed_paste  # a paste amid the reply is one message, too
        try:
            return characters(self._session.prompt(default=self._given, handle_sigint=False))
        except SystemExit:  # a signal between its first frame and its first key ends prompt_toolkit without this
            self._session.app.renderer.reset()
            marks = self._output.disable_bracketed_paste
            raise
        finally:
            if signal.getsignal(signal.SIGINT) is _ignore:  # else the program is ending
                signal.signal(signal.SIGINT, before)
            marks()
            self._output.flush()

    def _bottom(self) -> StyleAndTextTuples:
        if self._refusal and self._session.default_buffer.text == self._given:
            return [("class:bottom-toolbar.refusal", f" not sent: {self._refusal}")]
        return [("class:bottom-toolbar.text", f" {self._toolbar(self._output.get_size().columns)}")]


def _ignore(*_: object) -> None:
    """A handler, as an editor that is started from here would inherit SIG_IGN."""


def _more_follows(event: KeyPressEvent) -> bool:
    """Whether more keys are there already: a paste that no terminal marked as one, such as before the chat began."""
    if any(press.key != Keys.CPRResponse for press in event.key_processor.input_queue):
        return True
    if event.app.renderer.waiting_for_cpr:  # then what is there may be the terminal's answer
        return False
    with suppress(OSError, ValueError):
        return bool(select.select([event.app.input.fileno()], [], [], 0)[0])
    return False


def _keys(is_open: Callable[[str], bool]) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif is_open(buffer.text) or (_more_follows(event) and not buffer.text.startswith("/")):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class _Commands(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for word, replaces, about in self._complete(document.text_before_cursor):
            yield Completion(word, -replaces, display_meta=about)
