"""Start the ranks of a run, watch them, end them. Law: where one ends, all do, within seconds, and one says why.

`--hosts a,b` names the machines that share a target, this one, rank 0, first. The commands know this module by its name
alone (`command.machines`). This process computes nothing: mlx waits for ever for a rank that does not come, and
meanwhile nothing else runs in its process. So it starts rank 0 too, which has the terminal.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import shlex
import signal
import socket
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryFile
from typing import Any

from specdec_cli.core.errors import SpecdecError, UsageError, reason
from specdec_cli.system.link import BEAT, DESCRIPTOR, ENDING_SECONDS, MEETING_SECONDS, MET, REST, WAKE, ring_file

HELP = "specdec help several-machines"
LOCAL = ("127.", "::1", "localhost")
# Below the ports that systems give to outgoing connections.
PORTS = range(20_000, 32_000)
PYTHON = [sys.executable, "-m"]
# No question is asked; a machine that answers no more is given up after 15 seconds.
SSH = shlex.split("ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3")
# What a machine may take to start Python and mlx. What is left to rank 0 to say why it ends, where it knows.
START_SECONDS, OWN_WORDS_SECONDS = 40.0, 1.0
# Between two presses of Ctrl-C that end the program (`session.signals`), and what rank 0 then has to end.
TWICE_SECONDS, LEAVING_SECONDS = 1.0, 4.0
# The longest pass, of a chunk of a prompt over Wi-Fi. A sum that never ends is given up (mlx#4475, mlx#3910).
PASS_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Hosts:
    """`names` are what ssh calls the machines, `addresses` where each is reached, by rank."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]

    def is_local(self, rank: int) -> bool:
        """Whether no ssh is needed to it."""
        return self.names[rank].startswith(LOCAL)

    def ring(self) -> str:
        """What mlx reads in a file. Raises: UsageError where this machine does not have the first address."""
        begin = secrets.choice(PORTS)
        ring = [
            [free_port(one, name) if rank == 0 or self.is_local(rank) else f"{one}:{begin + 9 * rank}"]
            for rank, (one, name) in enumerate(zip(self.addresses, self.names, strict=True))
        ]
        return json.dumps(ring)


def free_port(address: str, name: str) -> str:
    """`address:port` that is free here. Raises: UsageError for an address of another machine."""
    for _ in range(100):
        with closing(socket.socket()) as tried:
            try:
                tried.bind((address, port := secrets.choice(PORTS)))
                return f"{address}:{port}"
            except OSError as error:
                failure = error
    hint = "name this machine first, by an address that the others reach"
    raise UsageError(f"{name} ({address}) is not this machine: {reason(failure)}", hint)


def read_hosts(hosts: str) -> Hosts:
    """Raises: UsageError for what names fewer than two machines, or machines that cannot meet."""
    names = tuple(name.strip() for name in hosts.split(","))
    found = Hosts(names, tuple(map(_address, names)))
    if len(names) < 2:
        raise UsageError(f"--hosts {hosts} names 1 machine, and a target is shared by 2 or more", HELP)
    apart = [name for name, ip in zip(names, found.addresses, strict=True) if not ip.startswith(LOCAL)]
    if apart and found.addresses[0].startswith(LOCAL):
        where = f"{names[0]} is {found.addresses[0]} here, where {apart[0]} cannot reach it"
        raise UsageError(where, "name this machine by its address in that network")
    return found


def _address(name: str) -> str:
    """Raises: UsageError for a name that nobody knows."""
    try:
        return socket.gethostbyname(name.rpartition("@")[2])
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"no machine is called {name!r}: {reason(error)}", "for example: --hosts 10.0.0.1,10.0.0.2"
        ) from error


class RemoteRank:
    """A further rank on `host`: a process, or the ssh to one. `facts` are what it said of itself."""

    def __init__(self, rank: int, hosts: Hosts, header: Mapping[str, Any]) -> None:
        self.rank, self.host, self.facts = rank, hosts.names[rank], dict[str, Any]()
        self._errors = TemporaryFile()  # noqa: SIM115  # closed with the process
        command = [*PYTHON, "specdec_cli.apps.several.rank"]
        command = command if hosts.is_local(rank) else [*SSH, self.host, shlex.join(command)]
        # A session of its own: Ctrl-C and Ctrl-Z are for rank 0.
        self.process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=self._errors, start_new_session=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self.output = self.process.stdin, self.process.stdout
        self.send(json.dumps({**header, "rank": rank}).encode() + b"\n")

    def send(self, data: bytes) -> None:
        """Nothing where it is gone."""
        with suppress(OSError):
            self._input.write(data)
            self._input.flush()

    def hear(self) -> bool:
        """A line of what it says; False at its end."""
        line = self.output.readline()
        with suppress(ValueError, TypeError):
            self.facts |= json.loads(line)
        return bool(line)

    def close(self) -> None:
        """Its input, on whose end it ends."""
        with suppress(OSError):
            self._input.close()

    def end(self) -> None:
        """Return once it has ended."""
        self.close()
        _end(self.process, OWN_WORDS_SECONDS)  # while it waits for others to meet, it hears nothing
        self.output.close()
        self._errors.close()

    def failure(self) -> SpecdecError:
        """Why it ended, or is to end."""
        who = f"rank {self.rank} on {self.host}"
        if "error" in self.facts:
            return SpecdecError(f"{who}: {self.facts['error']}", str(self.facts["hint"]))
        self.close()
        _end(self.process, OWN_WORDS_SECONDS)
        self._errors.seek(0)
        said = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        code, words = self.process.returncode, [line for line in said if line and not line.startswith("[")]
        why = words[-1] if words else f"signal {-code} ended it" if code < 0 else f"it ended with code {code}"
        if self.facts:
            return SpecdecError(f"{who} was lost: {why}", f"start again once it is back; {HELP}")
        hint = f"this must work without a password, with the same Python: ssh {self.host} {sys.executable} -V"
        return SpecdecError(f"{who} did not start: {why}", hint)


def _end(process: Popen[bytes], patience_seconds: float = ENDING_SECONDS) -> None:
    try:
        process.wait(patience_seconds)
    except TimeoutExpired:
        process.kill()
        process.wait()


def _close(machines: Sequence[RemoteRank]) -> None:
    for machine in machines:
        machine.close()


@contextmanager
def started(hosts: Hosts) -> Iterator[tuple[list[RemoteRank], dict[str, str]]]:
    """All further ranks, ready to meet, and rank 0's variables. At the end of the context all have ended.

    Raises: SpecdecError for one that does not start.
    """
    ring = hosts.ring()
    with ExitStack() as ending:
        machines: list[RemoteRank] = []
        for rank in range(1, len(hosts.names)):
            header = {"ring": ring, "folder": str(Path.cwd())}
            machines.append(RemoteRank(rank, hosts, header))
            ending.callback(machines[-1].end)
        ending.callback(_close, machines)
        deadline = time.monotonic() + START_SECONDS
        for machine in machines:
            with selectors.DefaultSelector() as waiting:
                waiting.register(machine.output, selectors.EVENT_READ)
                if not waiting.select(max(deadline - time.monotonic(), 0.0)):
                    raise SpecdecError(f"{machine.host} did not answer within {START_SECONDS:.0f} s", HELP)
            if not machine.hear() or "error" in machine.facts:
                raise machine.failure()
        yield machines, ending.enter_context(ring_file(ring))


def start(hosts: str, arguments: Sequence[str]) -> int:
    """Run the command line again as all ranks of `hosts`; returns the exit code. Raises: UsageError, SpecdecError."""
    return launch(read_hosts(hosts), [*PYTHON, "specdec_cli", *arguments])


def usable_bytes(hosts: str) -> list[tuple[str, int]]:
    """The further machines, and the bytes that models may take on each.

    Raises: UsageError, Refused, SpecdecError for one that does not answer.
    """
    with started(read_hosts(hosts)) as (found, *_):
        return [(machine.host, int(machine.facts["usable_bytes"])) for machine in found]


def launch(hosts: Hosts, command: Sequence[str]) -> int:
    """Run `command` as rank 0, which has the terminal, with all other ranks. Returns its exit code.

    Raises: SpecdecError where a rank is lost or does not come.
    """
    mine, theirs = socket.socketpair()
    with mine, theirs, started(hosts) as (machines, variables):
        own = {"MLX_RANK": "0", DESCRIPTOR: str(theirs.fileno())}
        before = None
        with suppress(termios.error):
            before = termios.tcgetattr(0)
        presses: list[float] = []  # of Ctrl-C, which rank 0 hears as well, unless it waits for another rank
        interrupted = signal.signal(signal.SIGINT, lambda *_: presses.append(time.monotonic()))
        first = Popen(command, env=os.environ | variables | own, pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            return _watch(first, mine, machines, presses)
        finally:
            if first.poll() is None:
                first.terminate()
                _end(first)
            if before is not None and first.returncode:
                with suppress(termios.error):
                    termios.tcsetattr(0, termios.TCSADRAIN, before)
            signal.signal(signal.SIGINT, interrupted)


def _watch(first: Popen[bytes], line: socket.socket, machines: Sequence[RemoteRank], presses: Sequence[float]) -> int:
    """Until rank 0 ends. Raises: SpecdecError where another one does, or where they no longer meet.

    KeyboardInterrupt where two `presses` should have ended rank 0, and it hears nothing.
    """
    deadline, patience = inf, float(MEETING_SECONDS)
    with selectors.DefaultSelector() as waiting:
        waiting.register(line, selectors.EVENT_READ)
        for machine in machines:
            waiting.register(machine.output, selectors.EVENT_READ, machine)
        while time.monotonic() <= deadline:
            for key, _ in waiting.select(1.0):
                if key.data is not None:
                    if not key.data.hear():
                        return _lost(first, key.data)
                elif data := line.recv(4096):
                    patience = PASS_SECONDS if MET in data else patience
                    deadline = inf if data.endswith(REST) else time.monotonic() + patience
                    for machine in machines:
                        machine.send(WAKE * data.count(WAKE))
                else:
                    return _code(first)
            twice = len(presses) > 1 and presses[-1] - presses[-2] <= TWICE_SECONDS
            if twice and time.monotonic() > presses[-1] + LEAVING_SECONDS:
                raise KeyboardInterrupt
            for machine in machines:
                machine.send(BEAT)
    names = " and ".join(machine.host for machine in machines)
    raise SpecdecError(f"this machine and {names} did not meet within {patience:.0f} s", HELP)


def _lost(first: Popen[bytes], machine: RemoteRank) -> int:
    """Rank 0 may end for a reason of its own, which it says. Raises: SpecdecError where it does not."""
    try:
        return first.wait(OWN_WORDS_SECONDS)
    except TimeoutExpired:
        first.terminate()
        _end(first)
        raise machine.failure() from None


def _code(first: Popen[bytes]) -> int:
    """Raises: SpecdecError where a signal ended it."""
    code = first.wait()
    if code < 0:
        raise SpecdecError(f"rank 0, on this machine, was ended by signal {-code}", HELP)
    return code
