"""What makes this process one of several ranks, or the one that starts them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from specdec_cli.cli.options import HostOptions
from specdec_cli.core.errors import Refused, UsageError


def take_part(machines: HostOptions, kv_bits: int | None = None) -> None:
    """Returns in the process that goes on with the command: the only one, or rank 0. The others end here.

    Raises: UsageError, Refused, SpecdecError where a rank does not start or is lost.
    """
    rank = os.environ.get("MLX_RANK")
    if rank is None and machines.hosts is None:
        return
    _require_whole_caches(kv_bits)
    if rank is None:
        from specdec_cli.several.hosts import read_hosts
        from specdec_cli.several.launch import PYTHON, launch

        named = read_hosts(str(machines.hosts))
        raise typer.Exit(launch(named, [*PYTHON, "specdec_cli", *sys.argv[1:]]))
    if rank != "0":
        from specdec_cli.several.rank import work

        work()
        raise typer.Exit


def _require_whole_caches(kv_bits: int | None) -> None:
    if kv_bits is not None:
        raise Refused(f"--kv-bits {kv_bits} and several machines were asked for", "leave one of them out")


def machine_bytes(machines: HostOptions, kv_bits: int | None) -> list[tuple[str, int]]:
    """The further machines, and the bytes that models may take on each; none where none are named.

    Raises: UsageError, Refused, SpecdecError for one that does not answer.
    """
    if machines.hosts is None:
        return []
    _require_whole_caches(kv_bits)
    from specdec_cli.several.hosts import read_hosts
    from specdec_cli.several.launch import started

    with started(read_hosts(machines.hosts)) as (found, *_):
        return [(machine.host, int(machine.facts["usable_bytes"])) for machine in found]


def on_one_machine(command: str, option: str, arguments: Sequence[str]) -> UsageError:
    """The refusal of an `option` that names several machines, for a command that runs on one."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = " ".join(words[words.index(option) :][:2])
    hint = "run, chat and audit share a target: specdec help several-machines"
    return UsageError(f"specdec {command} runs on one machine, and {given} names several", hint)
