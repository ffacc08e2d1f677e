"""The machines that share a target, as `--hosts a,b` names them (pure, but for the names' addresses).

The first one is this machine, rank 0.
"""

from __future__ import annotations

import json
import secrets
import socket
from contextlib import closing
from dataclasses import dataclass

from specdec_cli.core.errors import UsageError, reason

HELP = "specdec help several-machines"
LOCAL = ("127.", "::1", "localhost")
# Below the ports that systems give to outgoing connections.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class Hosts:
    """`names` are what ssh calls the machines, `addresses` where each is reached, by rank."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]

    def is_local(self, rank: int) -> bool:
        """Whether no ssh is needed to it."""
        return self.names[rank].startswith(LOCAL)

    def files(self) -> dict[str, str]:
        """The variables that name a file, and its text, as mlx's ring reads them; the rank is missing.

        Raises: UsageError where this machine does not have the first address.
        """
        begin = secrets.choice(PORTS)
        ring = [
            [free_port(one, name) if rank == 0 or self.is_local(rank) else f"{one}:{begin + 9 * rank}"]
            for rank, (one, name) in enumerate(zip(self.addresses, self.names, strict=True))
        ]
        return {"MLX_HOSTFILE": json.dumps(ring)}


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
