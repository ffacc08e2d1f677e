"""What makes this process one of several ranks, or the one that starts them."""

from __future__ import annotations

import os
import sys

import typer

from specdec_cli.cli.options import HostOptions
from specdec_cli.core.errors import Refused


def take_part(machines: HostOptions, kv_bits: int | None = None) -> None:
    """Returns in the process that goes on with the command: the only one, or rank 0. The others end here.

    Raises: UsageError, Refused, SpecdecError where a rank does not start or is lost.
    """
    rank = os.environ.get("MLX_RANK")
    if rank is None and machines == HostOptions():
        return
    if kv_bits is not None:
        raise Refused(f"--kv-bits {kv_bits} and several machines were asked for", "leave one of them out")
    if rank is None:
        from specdec_cli.several.hosts import read_hosts
        from specdec_cli.several.launch import PYTHON, launch

        named = read_hosts(machines.hosts, machines.hostfile)
        raise typer.Exit(launch(named, [*PYTHON, "specdec_cli", *sys.argv[1:]]))
    if rank != "0":
        from specdec_cli.several.rank import work

        work()
        raise typer.Exit
