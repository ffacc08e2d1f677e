"""Servers that run already: `specdec ps` and `specdec stop`; and how one is started in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import asdict

import typer

from specdec_cli.command.command import grouped, notify
from specdec_cli.core.errors import NotAvailable, SpecdecError, UsageError
from specdec_cli.core.format import duration, size
from specdec_cli.core.readfile import read_file
from specdec_cli.system import servers

app = typer.Typer()
# A server ends its answers at once, but not the pass that is computed then.
ENDING_SECONDS = 30.0
NOBODY, START = "no specdec server is running here", "specdec serve --detach starts one"


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
    log = servers.new_log(port)
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
