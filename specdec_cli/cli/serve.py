"""`specdec serve`: whatever can be refused is refused before any model is loaded."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.command import grouped, ignore_broken_pipe
from specdec_cli.cli.load import introduce_demo, load_session, resolve, without_reason
from specdec_cli.cli.options import DraftLength, MaxContext, ModelOptions, Panel, Plain, StopRepetition, option
from specdec_cli.cli.serve_options import AccessOptions, KeepOptions, PrintConfig, print_config, require_key
from specdec_cli.errors import NotAvailable, UsageError
from specdec_cli.kinds import DEFAULT_DRAFTER, drafter_at
from specdec_cli.request import Request, parse_k

if TYPE_CHECKING:
    from specdec_cli.pairs.pair import Pair, Registry
    from specdec_cli.pairs.resolve import Resolved
    from specdec_cli.serve.model import Switch
    from specdec_cli.session.session import LoadedPair

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


@app.command(short_help="Answer editors, agents and scripts over local HTTP.", epilog=EXAMPLES)
@grouped
@ignore_broken_pipe
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
    draft_length, idle_seconds = parse_k(k), keep.idle_seconds()
    key, origins, hosts = access.key(), access.origins(), access.hosts()
    require_key(access.host, hosts, key)
    ks = () if draft_length is None else (draft_length,)
    found = without_reason(resolve(models, ks))
    if config is not None:
        return print_config(config, found, access.host, access.port, key is not None, max_context, display.plain)
    with ExitStack() as stack:
        from specdec_cli.serve.disk import open_folder
        from specdec_cli.serve.http.access import AccessPolicy
        from specdec_cli.serve.http.server import Server, listen
        from specdec_cli.serve.http.service import Service
        from specdec_cli.serve.model import Model
        from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions
        from specdec_cli.ui.serve.log import ServerLog, words_file
        from specdec_cli.ui.serve.page import page_files
        from specdec_cli.ui.suspension import no_echo

        log = ServerLog(sys.stderr, display.quiet, display.plain, stack.enter_context(words_file(keep.log)))
        socket = stack.enter_context(closing(listen(access.host, access.port)))
        policy = AccessPolicy(socket.getsockname()[1], access.host, key, origins, hosts)
        folder, name, first = None, found.pair.name, list[Model]()
        if keep.cache_dir is not None:
            folder = stack.enter_context(open_folder(keep.cache_dir, keep.cache_dir_bytes, log.say))

        def base(found: Resolved) -> Request:
            """What every request starts from: the options, else the pair's own."""
            pair, loops = found.pair, found.pair.stop_repetition if stop_repetition is None else stop_repetition
            length = pair.k if draft_length is None else draft_length
            return Request(k=length, drafter=found.drafter, max_context=max_context, stop_repetition=loops)

        def load(found: Resolved) -> LoadedPair:
            """The pair; a panel says itself that it is loaded again."""
            shown = not display.quiet and not (first and display.draws)
            return load_session(found, models, reserve_tokens=RESERVE_TOKENS, shown=shown, plain=display.plain).pair

        def load_first() -> LoadedPair:
            pair = load(found)
            first[:] = [Model.of(pair, base(found), int(time.time()))]
            return pair  # nobody else keeps it, or it could not be let go

        others = Others(name, drafter_at(models.drafter, ks), base, load)
        options = SchedulerOptions(
            keep.parallel, slots=keep.slots, cache_bytes=keep.cache_bytes, idle_seconds=idle_seconds
        )
        scheduler = Scheduler(load_first, options, folder=folder, switch=others.loaded)
        stack.callback(scheduler.close)
        introduce_demo(name, shown=not display.quiet, plain=display.plain)
        if display.draws:
            stack.enter_context(no_echo(sys.stdin))
            stack.enter_context(log.panel(name, policy.url, scheduler.status))
            stack.callback(scheduler.close)  # before the panel goes, whose sums are then those of all requests
        switch = others.switch() if keep.switch else None
        service = Service(first[0], scheduler, policy, log.reply, page_files(), switch)
        Server(service, partial(log.started, name, policy.url, key is not None)).run([socket])
    return None


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
