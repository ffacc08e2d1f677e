"""What a server says while it runs: a line a reply on stderr, of figures; words only in the file that was asked for."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from specdec_cli.apps.serve.job import SchedulerStatus
from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import count, percent, speed
from specdec_cli.system.servers import bound_log
from specdec_cli.terminal.display import print_notice
from specdec_cli.terminal.terminal import is_terminal

WORDS = {200: "", 499: " left", 503: " cut short"}


class LogLine(Protocol):
    """A reply that is over: figures, and words."""

    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def words(self) -> Mapping[str, Any]: ...


class ServerLog:
    """A dim line for each reply on `err` unless `quiet`; with `file`, its words as a line of JSON there."""

    def __init__(self, err: TextIO, quiet: bool, plain: bool, file: TextIO | None = None) -> None:
        self._err, self._quiet, self._plain, self._file = err, quiet, plain, file
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """Something that the operator may want to know."""
        if not self._quiet:
            print_notice(self._err, line, self._plain)
            bound_log(self._err)

    def started(self, name: str, url: str, wants_key: bool, kept: str = "") -> None:
        """The server listens; `kept` says what it keeps on disk, if anything."""
        clients = "anyone with its key" if wants_key else "this machine only"
        self.say(f"{name} serves {clients}. OpenAI clients use {url}/v1;")
        self.say(f"Anthropic, Ollama and llama.cpp clients, and browsers, use {url}")
        self.say("Ctrl-C stops it; specdec help serve says what each client needs")
        if kept:
            self.say(kept)
        if not is_terminal(self._err):
            self.say(f"{self._now()} started")

    def _now(self) -> str:
        """The time, with the date where it may be read on another day."""
        return time.strftime("%H:%M:%S" if is_terminal(self._err) else "%Y-%m-%d %H:%M:%S")

    def reply(self, reply: LogLine) -> None:
        """A reply is over."""
        self.say(reply_line(self._now(), reply.facts))
        if self._file is not None:
            said = {"time": round(time.time(), 3), **reply.facts, **reply.words}
            with self._lock:
                self._file.write(json.dumps(said) + "\n")
                self._file.flush()

    def ended(self, status: SchedulerStatus) -> None:
        """What the server did; nothing where nobody asked."""
        rounds = status.totals.rounds
        accepted = f", {percent(rounds.draft_acceptance_rate)} of drafts accepted" if rounds.draft_n else ""
        if status.jobs:
            self.say(f"{count(status.jobs, 'request')}, {count(rounds.emitted_tokens, 'token')} generated{accepted}")


@contextmanager
def words_file(path: Path | None) -> Iterator[TextIO | None]:
    """The file for every word, which only its owner may read. Raises: UsageError."""
    if path is None:
        yield None
        return
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w")
    except OSError as error:
        raise UsageError(f"--log {path} cannot be written: {error.strerror}", "name another") from error
    with file:
        yield file


def reply_line(clock: str, facts: Mapping[str, Any]) -> str:
    """One reply: when, what, how much was read and written, how fast, how well was drafted."""
    status = WORDS.get(facts["status"], f" {facts['status']}")
    said = [f"{clock} {str(facts['path']).removeprefix('/').removeprefix('v1/')}{status}"]
    if facts["emitted_tokens"]:
        from_disk = f", {facts['disk_tokens']} of them from disk" if facts["disk_tokens"] else ""
        reused = f" ({facts['cached_tokens']} reused{from_disk})" if facts["cached_tokens"] else ""
        said.append(f"{facts['prompt_tokens']}{reused} → {count(facts['emitted_tokens'], 'token')}")
    if facts["tokens_per_second"]:
        said.append(speed(facts["tokens_per_second"]))
    if facts["draft_n"]:
        said.append(f"{percent(facts['draft_n_accepted'] / facts['draft_n'])} accepted")
    failed = [f"{what}: {facts[name]}" for name, what in (("refused", "refused"), ("failure", "failed")) if facts[name]]
    return "  ".join([*said, f"{facts['seconds']:.1f} s", *failed, *filter(None, [facts["note"]])])
