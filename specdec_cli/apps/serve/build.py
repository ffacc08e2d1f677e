"""A server of its options: it listens, loads its pair and answers; whatever it takes is given back at its end.

It says a line a reply on stderr, of figures; words only in the file that was asked for.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from specdec_cli.apps.serve.http.access import AccessPolicy
from specdec_cli.apps.serve.http.reply import Record
from specdec_cli.apps.serve.http.server import Server, listen
from specdec_cli.apps.serve.http.service import Service
from specdec_cli.apps.serve.job import SchedulerStatus
from specdec_cli.apps.serve.model import Model, Switch
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.command.load import introduce_demo, load_session
from specdec_cli.command.options import ModelOptions
from specdec_cli.core.errors import NotAvailable, UsageError
from specdec_cli.core.format import count, percent, size, speed
from specdec_cli.core.request import Request
from specdec_cli.pairs.catalog import other_rows, registry, rows
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.files import find
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import disk_cache_folder
from specdec_cli.session.session import LoadedPair
from specdec_cli.system.servers import announced, bound_log
from specdec_cli.terminal.display import print_notice
from specdec_cli.terminal.terminal import is_terminal

# A pair must fit with caches of so many tokens; what a longer conversation needs is looked at when it comes.
RESERVE_TOKENS = 4096
WORDS = {200: "", 499: " left", 503: " cut short"}


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What is served: the pair of `spec`, and if `switches`, others that are here. Requests start from `base`.

    `drafter` was asked to draft for all of them. `disk_bytes` of what was read are kept on disk.
    """

    spec: PairSpec
    models: ModelOptions
    drafter: str | None
    base: Callable[[PairSpec], Request]
    policy: AccessPolicy
    scheduler: SchedulerOptions
    disk_bytes: int = 0
    switches: bool = False
    log: Path | None = None
    quiet: bool = False
    plain: bool = False


def run(options: ServerOptions) -> None:
    """Serve until a signal comes. Raises: SpecdecError for a port in use, what loading the pair raises."""
    spec, shown, plain = options.spec, not options.quiet, options.plain
    with ExitStack() as stack:
        log = ServerLog(sys.stderr, options.quiet, plain, stack.enter_context(words_file(options.log)))
        socket = stack.enter_context(closing(listen(options.policy.host, options.policy.port)))
        policy, name = replace(options.policy, port=socket.getsockname()[1]), spec.pair.name
        disk = DiskCache(disk_cache_folder(), options.disk_bytes, log.say) if options.disk_bytes else None
        model = Model.of(find(spec), options.base(spec), int(time.time()))
        others = Switch(
            partial(pairs_here, name, options.drafter),
            options.base,
            with_draft=lambda other: spec_here(other.pair.name, options.drafter),
            specs={"": spec},
        )
        holds = stack.enter_context(announced(name, policy.url))

        def load(name: str) -> LoadedPair:
            holds(0, 0, loading=True)
            try:
                spec = others.specs[name]
                reserve = min(RESERVE_TOKENS, options.base(spec).max_context or RESERVE_TOKENS)
                session = load_session(spec, options.models, reserve_tokens=reserve, shown=shown, plain=plain)
                return replace(session.pair, disk=disk)
            except BaseException:
                holds(0, 0)
                raise

        scheduler = Scheduler(load, options.scheduler, holds=holds)
        stack.callback(scheduler.close)  # whatever fails from here on: its thread must not outlive this one
        introduce_demo(name, shown=shown, plain=plain)
        stack.callback(lambda: log.ended(scheduler.status()))
        stack.callback(scheduler.close)  # before the sums are said, which are then those of all requests
        switch = others if options.switches else None
        service = Service(model, scheduler, policy, log.reply, switch)
        kept = f"up to {size(disk.most_bytes)} of what is read is kept in {disk.folder}" if disk else ""
        Server(service, partial(log.started, name, policy.url, policy.key is not None, kept)).run([socket])


def pairs_here(first: str, drafter: str | None) -> Mapping[str, PairSpec]:
    """For --switch: what `specdec pairs` lists and is here, but for `first`, as models.toml and the folders are now.

    `drafter` drafts for all of them, or each one's own. A model that only its path names is left out: no client hears
    paths. Raises: NotAvailable.
    """
    with no_request_to_blame():
        known = registry()
    listed = rows(known)
    pairs = [row.pair for row in (*listed, *other_rows(known, listed)) if row.downloaded]
    return {one.name: PairSpec.of(one, drafter) for one in pairs if one.name != first and one.name[0] not in "/~."}


def spec_here(name: str, drafter: str | None) -> PairSpec:
    """The pair or model of that name as models.toml and the folders are now. Raises: NotAvailable, Refused."""
    with no_request_to_blame():
        spec = choose(name, None, None, here=True)
    return replace(spec, pair=replace(spec.pair, name=name), drafter=drafter or spec.drafter)


@contextmanager
def no_request_to_blame() -> Iterator[None]:
    """Raises: NotAvailable for a wrong models.toml."""
    try:
        yield
    except UsageError as error:
        raise NotAvailable(error.message, error.hint) from error


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

    def reply(self, reply: Record) -> None:
        """A reply is over. It is the client's even where it cannot be written down: on a full disk the file ends."""
        self.say(reply_line(self._now(), reply.facts))
        with self._lock:
            if self._file is None:
                return
            said = {"time": round(time.time(), 3), **reply.facts, **reply.words}
            try:
                self._file.write(json.dumps(said) + "\n")
                self._file.flush()
            except OSError as error:
                self.say(f"--log ends here, it cannot be written: {error.strerror}")
                with suppress(OSError):  # what could not be written before fails again
                    self._file.close()
                self._file = None

    def ended(self, status: SchedulerStatus) -> None:
        """What the server did; nothing where nobody asked."""
        rounds = status.totals.rounds
        accepted = f", {percent(rounds.draft_acceptance_rate)} of drafts accepted" if rounds.draft_n else ""
        if status.jobs:
            self.say(f"{count(status.jobs, 'answer')}, {count(rounds.emitted_tokens, 'token')} generated{accepted}")


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
