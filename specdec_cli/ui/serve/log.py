"""What a server says while it runs: a line a reply on stderr, of figures; words only in the file that was asked for."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TextIO

from specdec_cli.errors import UsageError
from specdec_cli.format import count, percent, speed
from specdec_cli.ui.display import print_notice
from specdec_cli.ui.serve.panel import ServerPanel, Watched
from specdec_cli.ui.terminal import is_terminal, terminal_size

WORDS = {200: "", 499: " left", 503: " cut short"}


class Reply(Protocol):
    """A reply that is over: figures, and words."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Figures alone."""
        ...

    @property
    def words(self) -> Mapping[str, Any]:
        """Prompt and answers."""
        ...


class ServerLog:
    """A dim line for each reply on `err` unless `quiet`; with `file`, its words as a line of JSON there."""

    def __init__(self, err: TextIO, quiet: bool, plain: bool, file: Path | None) -> None:
        self._err, self._quiet, self._plain, self._path = err, quiet, plain, file
        self._file: TextIO | None = None
        self._panel: ServerPanel | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> ServerLog:
        """Raises: UsageError for a file that cannot be written."""
        if self._path is not None:
            try:
                # Only its owner may read it: it holds every word.
                self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w")
            except OSError as error:
                raise UsageError(f"--log {self._path} cannot be written: {error.strerror}", "name another") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def started(self, name: str, url: str, wants_key: bool) -> None:
        """The server listens."""
        for line in started_lines(name, url, wants_key):
            self._say(line)

    def note(self, line: str) -> None:
        """Something that the operator may want to know."""
        self._say(line)

    def reply(self, reply: Reply) -> None:
        """A reply is over."""
        width = terminal_size(self._err)[0] if is_terminal(self._err) else None
        self._say(reply_line(time.strftime("%H:%M:%S"), reply.facts, width))
        if self._file is not None:
            said = {"time": round(time.time(), 3), **reply.facts, **reply.words}
            with self._lock:
                self._file.write(json.dumps(said) + "\n")
                self._file.flush()

    @contextmanager
    def panel(self, name: str, url: str, watched: Watched) -> Iterator[None]:
        """While open, lines go above a live panel of `watched`."""
        try:
            with ServerPanel(self._err, name, url, watched) as self._panel:
                yield
        finally:
            self._panel = None

    def _say(self, line: str) -> None:
        if self._panel is not None:
            self._panel.say(line)
        elif not self._quiet:
            print_notice(self._err, line, self._plain)


def started_lines(name: str, url: str, wants_key: bool) -> list[str]:
    """Where the server is, and how to go on."""
    door = "whoever has its key" if wants_key else "this machine only"
    return [
        f"{name} serves {door}. OpenAI's clients take {url}/v1,",
        f"Anthropic's, llama.cpp's and any browser (for a chat) {url}",
        "Ctrl-C ends it; specdec help serve says what each client wants",
    ]


def reply_line(clock: str, facts: Mapping[str, Any], width: int | None = None) -> str:
    """One reply: when, what, how much was read and written, how fast, how well was drafted.

    Where `width` cells are too few for all of it, the words that the figures can do without are left out.
    """
    line = _reply_line(clock, facts)
    for word in (" tokens", " token", " accepted") if width is not None else ():
        if len(line) <= (width or 0):
            break
        line = line.replace(word, "", 1)
    return line


def _reply_line(clock: str, facts: Mapping[str, Any]) -> str:
    status = WORDS.get(facts["status"], f" {facts['status']}")
    said = [f"{clock} {str(facts['path']).removeprefix('/').removeprefix('v1/')}{status}"]
    if facts["emitted_tokens"]:
        reused = f" ({facts['cached_tokens']} reused)" if facts["cached_tokens"] else ""
        said.append(f"{facts['prompt_tokens']}{reused} → {count(facts['emitted_tokens'], 'token')}")
    if facts["tokens_per_second"]:
        said.append(speed(facts["tokens_per_second"]))
    if facts["draft_n"]:
        said.append(f"{percent(facts['draft_n_accepted'] / facts['draft_n'])} accepted")
    failed = [f"{what}: {facts[name]}" for name, what in (("refused", "refused"), ("failure", "failed")) if facts[name]]
    return "  ".join([*said, f"{facts['seconds']:.1f} s", *failed])
