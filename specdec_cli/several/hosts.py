"""The machines that share a target: `--hosts a,b`, or a hostfile as mlx writes it (pure, but for the names' addresses).

The first one is this machine, rank 0.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import UsageError, reason, untrusted

HELP = "specdec help several-machines"
LOCAL = ("127.", "::1", "localhost")
# Below the ports that systems give to outgoing connections.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class Hosts:
    """`names` are what ssh calls the machines, `addresses` those at which each is reached, by rank.

    `backend` is mlx's ring (TCP) or jaccl, which needs the `rdma` devices of each towards each; `envs` are variables.
    """

    names: tuple[str, ...]
    addresses: tuple[tuple[str, ...], ...]
    backend: str = "ring"
    rdma: tuple[Any, ...] = ()
    envs: tuple[str, ...] = ()

    def is_local(self, rank: int) -> bool:
        """Whether no ssh is needed to it."""
        return self.names[rank].startswith(LOCAL)

    def environment(self) -> tuple[dict[str, str], dict[str, str]]:
        """(variables, variables that name a file of such a text), as mlx reads them; the rank is missing.

        Raises: UsageError where this machine does not have the first address.
        """
        variables = dict(env.partition("=")[::2] for env in self.envs)
        first = free_port(self.addresses[0][0], self.names[0])
        if self.backend == "jaccl":
            return variables | {"MLX_JACCL_COORDINATOR": first}, {"MLX_IBV_DEVICES": json.dumps(self.rdma)}
        begin = secrets.choice(PORTS)
        ring = [
            [f"{one}:{begin + 9 * rank + i}" for i, one in enumerate(ips)] for rank, ips in enumerate(self.addresses)
        ]
        local = [rank for rank in range(len(ring)) if rank == 0 or self.is_local(rank)]
        for rank in local:
            ring[rank] = [free_port(one, self.names[rank]) for one in self.addresses[rank]]
        return variables, {"MLX_HOSTFILE": json.dumps(ring)}


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


def read_hosts(hosts: str | None, hostfile: Path | None) -> Hosts:
    """Raises: UsageError for what names fewer than two machines, or is no hostfile of mlx's."""
    if hosts is not None and hostfile is not None:
        raise UsageError(f"--hosts {hosts} and --hostfile {hostfile} both name machines", "give one of the two")
    if hosts is not None:
        names = tuple(name.strip() for name in hosts.split(","))
        found, given = Hosts(names, tuple((_address(name),) for name in names)), f"--hosts {hosts}"
    else:
        given = f"--hostfile {hostfile}"
        with untrusted(lambda why: UsageError(f"{given} is no hostfile of mlx's: {why}", HELP)):
            found = _of_file(jsonfile.parse(Path(str(hostfile)).read_bytes()))
    if len(found.names) < 2:
        raise UsageError(f"{given} names {len(found.names)} machine, and a target is shared by 2 or more", HELP)
    if found.backend not in ("ring", "jaccl"):
        raise UsageError(f"{given} asks for {found.backend}, and specdec knows ring and jaccl", HELP)
    if found.backend == "jaccl" and any(len(row or ()) != len(found.names) for row in found.rdma):
        raise UsageError(f"{given} lacks rdma devices for {len(found.names)} machines", HELP)
    if any(not ips for ips in found.addresses):
        raise UsageError(f"{given} lacks the ips of a machine", HELP)
    apart = [name for name, (ip, *_) in zip(found.names, found.addresses, strict=True) if not ip.startswith(LOCAL)]
    if apart and found.addresses[0][0].startswith(LOCAL):
        where = f"{found.names[0]} is {found.addresses[0][0]} here, where {apart[0]} cannot reach it"
        raise UsageError(where, "name this machine by its address in that network")
    return found


def _of_file(read: Any) -> Hosts:
    """A list of machines, or of the ring's addresses, or a list with the backend beside it."""
    whole: Mapping[str, Any] = read if isinstance(read, dict) else {"hosts": read}
    machines: Iterable[Any] = whole["hosts"]
    rows = [row if isinstance(row, dict) else {"ips": [ip.rpartition(":")[0] or ip for ip in row]} for row in machines]
    return Hosts(
        tuple(str(row.get("ssh") or row["ips"][0]) for row in rows),
        tuple(tuple(map(str, row.get("ips") or [_address(str(row["ssh"]))])) for row in rows),
        whole.get("backend") or "ring",
        tuple(row.get("rdma") for row in rows),
        tuple(whole.get("envs", ())),
    )


def _address(name: str) -> str:
    """Raises: UsageError for a name that nobody knows."""
    try:
        return socket.gethostbyname(name.rpartition("@")[2])
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"no machine is called {name!r}: {reason(error)}", "for example: --hosts 10.0.0.1,10.0.0.2"
        ) from error
