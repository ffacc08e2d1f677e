"""`specdec serve`: whatever can be refused is refused before any model is loaded."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.command import grouped
from specdec_cli.cli.load import introduce_demo, load_session, resolve, without_reason
from specdec_cli.cli.options import DraftLength, MaxContext, ModelOptions, Panel, Plain, StopRepetition, option
from specdec_cli.cli.serve_options import NEVER, NO_KEY, AccessOptions, KeepOptions, PrintConfig, print_config
from specdec_cli.errors import NotAvailable, UsageError
from specdec_cli.kinds import DEFAULT_DRAFTER, K, drafter_at
from specdec_cli.request import Request, parse_k

if TYPE_CHECKING:
    from specdec_cli.pairs.pair import Pair, Registry
    from specdec_cli.pairs.resolve import Resolved
    from specdec_cli.serve.disk import Folder
    from specdec_cli.serve.model import Model, Switch
    from specdec_cli.serve.scheduler import Scheduler
    from specdec_cli.session.session import LoadedPair
    from specdec_cli.ui.serve.log import ServerLog

app = typer.Typer()
# A pair must fit with caches of so many tokens; what a longer conversation needs is looked at when it comes.
RESERVE_TOKENS = 4096
EXAMPLES = """[dim]Examples:[/dim]\n
[dim]  specdec serve[/dim]\n
[dim]  specdec serve -p qwen3-8b --port 9000[/dim]\n
[dim]  SPECDEC_API_KEY=… specdec serve --host 0.0.0.0[/dim]"""


@dataclass(frozen=True, slots=True)
class ServeDisplay:
    """What the operator sees."""

    panel: Panel = None
    quiet: Annotated[bool, option("--quiet", "-q", help="Errors only: no panel, no line for each reply.")] = False
    plain: Plain = False

    @property
    def draws(self) -> bool:
        """Whether there is a live panel."""
        from specdec_cli.ui.terminal import can_draw

        return self.panel is not False and not self.quiet and not self.plain and can_draw(sys.stderr)

    def begin(self, stack: ExitStack, log: ServerLog, name: str, url: str, scheduler: Scheduler) -> None:
        """What the demo is, if the pair `name` is that; and the panel, until `stack` ends."""
        from specdec_cli.ui.suspension import no_echo

        introduce_demo(name, shown=not self.quiet, plain=self.plain)
        if self.draws:
            stack.enter_context(no_echo(sys.stdin))
            stack.enter_context(log.panel(name, url, scheduler))
            stack.callback(scheduler.close)  # before the panel goes, whose sums are then those of all requests


@app.command(short_help="Answer editors, agents and scripts over local HTTP.", epilog=EXAMPLES)
@grouped
def serve(
    *,
    models: ModelOptions,
    access: AccessOptions,
    keep: KeepOptions,
    k: DraftLength = None,
    max_context: MaxContext = None,
    stop_repetition: StopRepetition = None,
    config: PrintConfig = None,
    display: ServeDisplay,
) -> None:
    """Answer editors, agents and scripts: OpenAI's, Anthropic's and llama.cpp's protocols, closed to others."""
    draft_length, idle_seconds = parse_k(k), idle(keep.idle_unload)
    key, origins, hosts = access.key(), access.origins(), access.hosts()
    require_key(access.host, hosts, key)
    ks = () if draft_length is None else (draft_length,)
    found = without_reason(resolve(models, ks))
    if config is not None:
        print_config(config, found, access.host, access.port, key is not None, max_context, display.plain)
        return
    with ExitStack() as stack:
        from specdec_cli.serve.disk import open_folder
        from specdec_cli.serve.http.access import AccessPolicy
        from specdec_cli.serve.http.server import Server, listen
        from specdec_cli.serve.http.service import Service
        from specdec_cli.ui.serve.log import ServerLog
        from specdec_cli.ui.serve.page import page_files

        log = stack.enter_context(ServerLog(sys.stderr, display.quiet, display.plain, keep.log))
        socket = stack.enter_context(closing(listen(access.host, access.port)))
        policy = AccessPolicy(socket.getsockname()[1], access.host, key, origins, hosts)
        based = partial(base_request, k=draft_length, max_context=max_context, stop_repetition=stop_repetition)
        load = Loader(models, display)
        others = Others(found.pair.name, drafter_at(models.drafter, ks), based, load)
        folder = None
        if keep.cache_dir is not None:
            folder = stack.enter_context(open_folder(keep.cache_dir, keep.cache_dir_bytes, log.note))
        model, scheduler = build(partial(load, found), based(found), keep, idle_seconds, others.loaded, folder)
        stack.callback(scheduler.close)
        display.begin(stack, log, found.pair.name, policy.url, scheduler)
        switch = others.switch() if keep.switch else None
        service = Service(model, scheduler, policy, log.reply, page_files(), switch)
        started = partial(log.started, found.pair.name, policy.url, key is not None)
        Server(service, started).run([socket])


def require_key(host: str, hosts: Sequence[str], key: str | None) -> None:
    """Raises: UsageError for an interface that others reach, or a name that others may have, without a key."""
    from specdec_cli.serve.http.access import LOOPBACK, host_and_port, is_loopback

    if key is None and not is_loopback(host):
        raise UsageError(f"--host {host} lets other machines in, and there is no key", NO_KEY)
    for name in hosts:
        if key is None and host_and_port(name)[0] not in LOOPBACK:
            raise UsageError(f"--allow-host {name} lets other machines in, and there is no key", NO_KEY)


def base_request(found: Resolved, k: K | None, max_context: int | None, stop_repetition: int | None) -> Request:
    """What every request starts from: the options, else the pair's own."""
    pair = found.pair
    return Request(
        k=pair.k if k is None else k,
        drafter=found.drafter,
        max_context=max_context,
        stop_repetition=pair.stop_repetition if stop_repetition is None else stop_repetition,
    )


def idle(text: str) -> float | None:
    """Seconds until idle models are let go; None keeps them. Raises: UsageError for no time."""
    from specdec_cli.cli.bench_options import parse_seconds

    return None if text in NEVER else parse_seconds("--idle-unload", text)


@dataclass(slots=True)
class Loader:
    """Loads pairs, the first time and after every unloading, when a panel says so itself."""

    models: ModelOptions
    display: ServeDisplay
    first: bool = True

    def __call__(self, found: Resolved) -> LoadedPair:
        """The pair. Raises: NotAvailable, Refused, DoesNotFit."""
        shown = not self.display.quiet and (self.first or not self.display.draws)
        self.first = False
        return load_session(
            found, self.models, reserve_tokens=RESERVE_TOKENS, shown=shown, plain=self.display.plain
        ).pair


def build(
    load: Callable[[], LoadedPair],
    base: Request,
    options: KeepOptions,
    idle_seconds: float | None,
    switch: Callable[[str], LoadedPair],
    folder: Folder | None = None,
) -> tuple[Model, Scheduler]:
    """The pair's facts, and the scheduler that owns the pair: nobody else keeps it, or it could not be unloaded."""
    from specdec_cli.serve.model import Model
    from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions

    facts: list[Model] = []
    since = int(time.time())

    def load_and_note() -> LoadedPair:
        pair = load()
        facts[:] = [Model.of(pair, base, since)]
        return pair

    wanted = SchedulerOptions(
        options.parallel, slots=options.slots, cache_bytes=options.cache_bytes, idle_seconds=idle_seconds
    )
    scheduler = Scheduler(load_and_note, wanted, folder=folder, switch=switch)
    return facts[0], scheduler


@dataclass(frozen=True, slots=True)
class Others:
    """For --switch: the pairs of models.toml that are here, but for the `first`.

    `drafter` drafts for all of them, or each one's own.
    """

    first: str
    drafter: str | None
    based: Callable[[Resolved], Request]
    load: Callable[[Resolved], LoadedPair]

    def here(self) -> Mapping[str, Pair]:
        """By name, as models.toml and the model cache are now. Raises: NotAvailable for a wrong models.toml."""
        from specdec_cli.pairs.catalog import downloaded

        return {name: p for name, p in _registry().pairs.items() if name != self.first and downloaded(p)}

    def switch(self) -> Switch:
        """What a server knows of them."""
        from specdec_cli.serve.model import Switch

        return Switch(self.here, lambda pair: self.based(self._resolved(pair)))

    def loaded(self, name: str) -> LoadedPair:
        """The pair of that name. Raises: NotAvailable, Refused, DoesNotFit."""
        return self.load(self._resolved(_registry().find(name)))

    def _resolved(self, pair: Pair) -> Resolved:
        from specdec_cli.pairs.resolve import Resolved

        return Resolved(pair, drafter=self.drafter or pair.drafter or DEFAULT_DRAFTER)


def _registry() -> Registry:
    """All pairs now. Raises: NotAvailable, for no request is to blame."""
    from specdec_cli.pairs.catalog import registry

    try:
        return registry()
    except UsageError as error:
        raise NotAvailable(error.message, error.hint) from error
