"""`specdec serve`, `ps` and `stop`: whatever can be refused is refused before any model is loaded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from specdec_cli.apps.serve.clients import CLIENTS, KEY, Address, notes
from specdec_cli.command.command import grouped, notify
from specdec_cli.command.load import AnswerSettings, specify, without_reason
from specdec_cli.command.options import ModelOptions
from specdec_cli.command.values import parse_idle, parse_size
from specdec_cli.core.errors import NotAvailable, SpecdecError, UsageError, not_written
from specdec_cli.core.format import duration, size
from specdec_cli.core.kinds import drafter_at
from specdec_cli.core.readfile import read_file
from specdec_cli.core.request import Request, parse_k
from specdec_cli.core.template import NO_VALUES
from specdec_cli.core.textfile import text_of_file
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.system import servers

app = typer.Typer()
EXAMPLES = """specdec serve
specdec serve -p qwen3-8b --detach
SPECDEC_API_KEY=… specdec serve --host 0.0.0.0"""
# A star stands for every page of an application; of the web's schemes, whose pages anybody makes, it would let all in.
ORIGIN = re.compile(r"(?!https?:|null:)[a-z][a-z0-9+.-]*://\*|[a-z][a-z0-9+.-]*://[^/*\s]*", re.ASCII)
NO_KEY = f"give one: --api-key-file FILE, or {KEY} in the environment"
CONFIG = "--print-config"
# What `apps.serve.scheduler` takes where nothing is said; its import would load mlx.
SLOTS, PARALLEL = 16, 4
# A server ends its answers at once, but not the pass that is computed then.
ENDING_SECONDS = 30.0
NOBODY, START = "no specdec server is running here", "specdec serve --detach starts one"


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Where the server listens, and who may come in."""

    host: str = "127.0.0.1"
    port: int = 8040
    api_key_file: Path | None = None
    allow_origin: list[str] | None = None
    allow_host: list[str] | None = None

    def key(self) -> str | None:
        """The key, None where clients need none. Raises: UsageError for an empty or unreadable one."""
        source, key = KEY, os.environ.get(KEY)
        if self.api_key_file is not None:
            source = f"--api-key-file {self.api_key_file}"
            key = text_of_file(self.api_key_file, source, NO_KEY)
        key = key and key.strip()
        if key is not None and (not key or not key.isascii() or not key.isprintable()):
            hint = "for example: openssl rand -hex 24"
            raise UsageError(f"{source} holds no key: one line of ASCII is expected", hint)
        return key

    def origins(self) -> tuple[str, ...]:
        """Raises: UsageError for what is not the origin of a web page, or all origins of an application's scheme."""
        for origin in self.allow_origin or ():
            if not ORIGIN.fullmatch(origin):
                hint = "for example: --allow-origin http://localhost:3000, or vscode-webview://* for an application's"
                raise UsageError(f"--allow-origin {origin} is not the origin of a web page", hint)
        return tuple(self.allow_origin or ())

    def hosts(self) -> tuple[str, ...]:
        """Further names of the server. Raises: UsageError for what is none."""
        for host in self.allow_host or ():
            if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[\w.-]+)(:\d{1,5})?", host, re.ASCII):
                hint = "for example: --allow-host mac-studio.local"
                raise UsageError(f"--allow-host {host} is not a host name", hint)
        return tuple(host.lower() for host in self.allow_host or ())


def require_key(host: str, hosts: Sequence[str], key: str | None) -> None:
    """Raises: UsageError for an interface that others reach, or a name that others may have, without a key."""
    from specdec_cli.apps.serve.http.access import LOOPBACK, host_and_port, is_loopback

    foreign = [] if is_loopback(host) else [f"--host {host}"]
    foreign += [f"--allow-host {name}" for name in hosts if host_and_port(name)[0] not in LOOPBACK]
    if key is None and foreign:
        raise UsageError(f"{foreign[0]} lets other machines connect, but no key is set", NO_KEY)


@dataclass(frozen=True, slots=True)
class KeepOptions:
    """How many conversations are kept and served at once."""

    slots: int = SLOTS
    cache_bytes: int | None = None
    cache_disk: str | None = None
    parallel: int = PARALLEL
    idle_unload: str = "10m"
    switch: bool = False
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class ServeDisplay:
    """What the operator sees."""

    quiet: bool = False
    plain: bool = False


@app.command(epilog=EXAMPLES)
@grouped
def serve(
    *,
    models: ModelOptions,
    access: AccessOptions,
    keep: KeepOptions,
    k: str | None = None,
    max_context: int | None = None,
    stop_repetition: int | None = None,
    config: str | None = None,
    detach: bool = False,
    display: ServeDisplay,
) -> None:
    """Answer editors, agents and scripts over local HTTP.

    OpenAI's, Anthropic's, Ollama's and llama.cpp's protocols, closed to other machines.
    """
    settings = AnswerSettings(Request(max_context=max_context), parse_k(k), stop_repetition, NO_VALUES)
    idle_seconds = parse_idle(keep.idle_unload)
    disk_bytes = 0 if keep.cache_disk is None else parse_size("--cache-disk", keep.cache_disk)
    key, origins, hosts = access.key(), access.origins(), access.hosts()
    require_key(access.host, hosts, key)
    spec = without_reason(specify(models, settings.ks, shown=not display.quiet, plain=display.plain))
    if config is not None:
        base = settings.request(spec)
        return print_config(config, spec, base, access.host, access.port, key is not None, display.plain)
    if detach:
        return start_in_background(access.port, shown=not display.quiet, plain=display.plain)
    from specdec_cli.apps.serve.build import ServerOptions, run
    from specdec_cli.apps.serve.http.access import AccessPolicy
    from specdec_cli.apps.serve.scheduler import SchedulerOptions

    run(
        ServerOptions(
            spec,
            models,
            drafter_at(models.drafter, settings.ks),
            settings.request,
            AccessPolicy(access.port, access.host, key, origins, hosts),
            SchedulerOptions(keep.parallel, slots=keep.slots, cache_bytes=keep.cache_bytes, idle_seconds=idle_seconds),
            disk_bytes,
            keep.switch,
            keep.log,
            display.quiet,
            display.plain,
        )
    )
    return None


def print_config(name: str, spec: PairSpec, base: Request, host: str, port: int, wants_key: bool, plain: bool) -> None:
    """Settings of the client `name` for this pair at that address, on stdout; no weight is read.

    Raises: NotAvailable, Refused, UsageError.
    """
    from specdec_cli.apps.serve.http.access import AccessPolicy
    from specdec_cli.pairs.files import find

    if port == 0:
        raise UsageError(f"{CONFIG} {name} needs the port that clients will find", "for example: --port 8040")
    files = find(spec)
    tools = files.tokenizer.call_form is not None
    to = Address(AccessPolicy(port, host).url, spec.pair.name, files.context.tokens(base), wants_key, tools)
    for note in notes(name, to):
        notify(note, plain)
    typer.echo(CLIENTS[name].write(to))


@app.command()
@grouped
def ps(*, json: bool = False) -> None:
    """List the servers that run here: pair, address, age, memory."""
    from specdec_cli.terminal.display import print_columns, print_json

    found, now = servers.running(), time.time()
    if json:
        print_json(sys.stdout, [asdict(one) for one in found])
    elif not found:
        notify(f"{NOBODY}: {START}", plain=False)
    else:
        held = ["loading" if one.loading else size(one.weight_bytes) for one in found]
        ages = [duration(max(0, round(now - one.since))) for one in found]
        told = [f"pid {one.pid}, {age}, {words}" for one, age, words in zip(found, ages, held, strict=True)]
        print_columns(sys.stdout, [(one.pair, one.url, words) for one, words in zip(found, told, strict=True)])


@app.command()
@grouped
def stop(*, server: str | None = None, every: bool = False) -> None:
    """End a server that runs here, and wait until it has ended."""
    found = servers.running()
    chosen = [one for one in found if server in (None, str(one.pid), one.pair, one.url.rpartition(":")[2])]
    if not found:
        raise NotAvailable(NOBODY, START)
    if not chosen:
        raise NotAvailable(f"no server {server} is running here", "specdec ps lists the running ones")
    if len(chosen) > 1 and not every:
        raise UsageError(f"{len(chosen)} servers match", "name one by its pid (specdec ps), or end them with --all")
    for one in chosen:
        if not servers.end(one, ENDING_SECONDS):
            problem = f"{one.pair} at {one.url} is still running after {ENDING_SECONDS:g} s"
            raise SpecdecError(problem, f"kill -9 {one.pid}")
        notify(f"ended: {one.pair} at {one.url}", plain=False)


def start_in_background(port: int, *, shown: bool, plain: bool) -> None:
    """This command line again, less --detach, as a process of its own; returns once it listens and its models are here.

    Raises: SpecdecError, or typer.Exit once the error of a server that ended instead was repeated.
    """
    try:
        log = servers.new_log(port)
    except OSError as error:
        message = f"{servers.servers_folder()} cannot be written: {error.strerror}"
        raise not_written(
            error, message, "check its permissions, or leave --detach out", "free some space first"
        ) from error
    command = [sys.executable, "-P", "-m", "specdec_cli", *(word for word in sys.argv[1:] if word != "--detach")]
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
        servers.bound_log(file)
        before = log.stat().st_size  # what another server wrote there
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    try:
        while process.poll() is None:
            for one in servers.others():
                if one.pid == process.pid:
                    return notify(f"{one.pair} is served at {one.url}; its log: {log}", plain) if shown else None
            time.sleep(0.1)
    except BaseException:  # Ctrl-C
        process.terminate()
        raise
    last = read_file(log)[before:].decode(errors="replace").splitlines()[-2:]
    if last and last[0].startswith("error: "):
        typer.echo("\n".join(last), err=True)
        raise typer.Exit(process.returncode)
    raise SpecdecError(f"the server ended with exit code {process.returncode}", f"its log says why: {log}")
