"""Start the ranks of a run, watch them, end them. Law: where one ends, all do, within seconds, and one says why.

This process computes nothing: mlx waits for ever for a rank that does not come, and then nothing else runs in its
process. So it starts rank 0 too, which has the terminal.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import signal
import socket
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from specdec_cli.core.errors import SpecdecError
from specdec_cli.several.hosts import HELP, Hosts
from specdec_cli.system.link import BEAT, DESCRIPTOR, ENDING_SECONDS, MEETING_SECONDS, MET, WAKE

PYTHON = [sys.executable, "-m"]
# No question is asked; a machine that answers no more is given up after 15 seconds.
SSH = shlex.split("ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3")
# What a machine may take to start Python and mlx. What is left to rank 0 to say why it ends, where it knows.
START_SECONDS, OWN_WORDS_SECONDS = 40.0, 1.0


class Machine:
    """A further rank, which runs on `host`: a process, or the ssh to one."""

    def __init__(self, rank: int, hosts: Hosts, variables: dict[str, str], files: dict[str, str]) -> None:
        self.rank, self.host, self.facts = rank, hosts.names[rank], dict[str, Any]()
        command = [*PYTHON, "specdec_cli.several.rank"]
        self._errors = TemporaryFile()  # noqa: SIM115  # until the process ends
        self.process = Popen(
            command if hosts.is_local(rank) else [*SSH, self.host, shlex.join(command)],
            stdin=PIPE, stdout=PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        header = {"variables": variables | {"MLX_RANK": str(rank)}, "files": files, "folder": str(Path.cwd())}
        self.send(json.dumps(header).encode() + b"\n")

    def send(self, data: bytes) -> None:
        """Nothing where it is gone."""
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def hear(self) -> bool:
        """A line of what it says of itself; False at its end."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        with suppress(ValueError):
            self.facts |= json.loads(line)
        return bool(line)

    def failure(self) -> SpecdecError:
        """Why it is no longer there."""
        who = f"rank {self.rank} on {self.host}"
        if "error" in self.facts:
            return SpecdecError(f"{who}: {self.facts['error']}", str(self.facts["hint"]))
        self.end()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").splitlines()
        words = [line.strip() for line in said if line.strip() and not line.startswith("[")]
        code = self.process.returncode
        why = words[-1] if words else f"signal {-code} ended it" if code < 0 else f"it ended with code {code}"
        if not self.facts:
            hint = f"this must work without a password, and the same Python: ssh {self.host} {sys.executable} -V"
            return SpecdecError(f"{who} did not start: {why}", hint)
        return SpecdecError(f"{who} was lost: {why}", f"start again once it is back; {HELP}")

    def close(self) -> None:
        """Its line, on which it ends itself."""
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def end(self) -> None:
        """Return once it has ended."""
        self.close()
        _end(self.process, signal.SIGKILL)


def _end(process: Popen[bytes], last: int) -> None:
    try:
        process.wait(ENDING_SECONDS)
    except TimeoutExpired:
        process.send_signal(last)
        process.wait()


@contextmanager
def started(hosts: Hosts) -> Iterator[tuple[list[Machine], dict[str, str], dict[str, str]]]:
    """All further ranks, ready to meet; then rank 0's variables and files. At the end of the context all are ended.

    Raises: SpecdecError for one that does not start.
    """
    variables, files = hosts.environment()
    machines: list[Machine] = []
    try:
        machines += [Machine(rank, hosts, variables, files) for rank in range(1, len(hosts.names))]
        deadline = time.monotonic() + START_SECONDS
        for machine in machines:
            with selectors.DefaultSelector() as waiting:
                assert machine.process.stdout is not None
                waiting.register(machine.process.stdout, selectors.EVENT_READ)
                if not waiting.select(max(deadline - time.monotonic(), 0.0)):
                    raise SpecdecError(f"{machine.host} did not answer within {START_SECONDS:.0f} s", HELP)
            if not machine.hear() or "error" in machine.facts:
                raise machine.failure()
        yield machines, variables, files
    finally:
        for machine in machines:
            machine.close()
        for machine in machines:
            machine.end()


def launch(hosts: Hosts, command: Sequence[str]) -> int:
    """Run `command` as rank 0, which has the terminal, with all other ranks. Returns its exit code.

    Raises: SpecdecError where a rank is lost or does not come.
    """
    with started(hosts) as (machines, variables, files), _rank_zero(command, variables, files) as (first, line):
        return _watch(first, line, machines)


@contextmanager
def _rank_zero(
    command: Sequence[str], variables: dict[str, str], files: dict[str, str]
) -> Iterator[tuple[Popen[bytes], socket.socket]]:
    """The process with the terminal, which is as it was once that has ended, and the line to it."""
    mine, theirs = socket.socketpair()
    with suppress(termios.error):
        before = termios.tcgetattr(0)
    interrupted = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for rank 0, which hears it as well
    with mine, write_files(files) as paths:
        own = {"MLX_RANK": "0", DESCRIPTOR: str(theirs.fileno())}
        process = Popen(command, env=os.environ | variables | paths | own, pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            yield process, mine
        finally:
            if process.poll() is None:
                process.terminate()
                _end(process, signal.SIGKILL)
                with suppress(termios.error, NameError):
                    termios.tcsetattr(0, termios.TCSADRAIN, before)
            signal.signal(signal.SIGINT, interrupted)


@contextmanager
def write_files(files: dict[str, str]) -> Iterator[dict[str, str]]:
    """Variables that name files of these texts, which are there for as long as the context."""
    with TemporaryDirectory() as folder:
        paths = {name: str(Path(folder, name)) for name in files}
        for name, path in paths.items():
            Path(path).write_text(files[name], encoding="utf-8")
        yield paths


def _watch(first: Popen[bytes], line: socket.socket, machines: Sequence[Machine]) -> int:
    """Until rank 0 ends. Raises: SpecdecError where another one does, or where they do not meet."""
    deadline, met = inf, False
    with selectors.DefaultSelector() as waiting:
        waiting.register(line, selectors.EVENT_READ)
        for machine in machines:
            assert machine.process.stdout is not None
            waiting.register(machine.process.stdout, selectors.EVENT_READ, machine)
        while True:
            for key, _ in waiting.select(1.0):
                if key.data is None:
                    data = line.recv(4096)
                    if not data:
                        return _code(first)
                    met = met or MET in data
                    deadline = inf if met else time.monotonic() + MEETING_SECONDS
                    for machine in machines:
                        machine.send(WAKE * data.count(WAKE))
                elif not key.data.hear():
                    return _lost(first, key.data)
            for machine in machines:
                machine.send(BEAT)
            if time.monotonic() > deadline:
                names = ", ".join(machine.host for machine in machines)
                raise SpecdecError(f"this machine and {names} did not meet within {MEETING_SECONDS} s", HELP)


def _lost(first: Popen[bytes], machine: Machine) -> int:
    """Rank 0 may have ended for a reason of its own, which it has said."""
    try:
        return first.wait(OWN_WORDS_SECONDS)
    except TimeoutExpired:
        first.terminate()
        _end(first, signal.SIGKILL)
        raise machine.failure() from None


def _code(first: Popen[bytes]) -> int:
    """Raises: SpecdecError where a signal ended it."""
    code = first.wait()
    if code < 0:
        raise SpecdecError(f"rank 0, on this machine, was ended by signal {-code}", HELP)
    return code
