"""What `--hosts` asks of this app. The commands know it by its name alone."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.apps.several.hosts import read_hosts
from specdec_cli.apps.several.launch import PYTHON, launch, started


def start(hosts: str, arguments: Sequence[str]) -> int:
    """Run the command line again as all ranks of `hosts`; returns the exit code. Raises: UsageError, SpecdecError."""
    return launch(read_hosts(hosts), [*PYTHON, "specdec_cli", *arguments])


def usable_bytes(hosts: str) -> list[tuple[str, int]]:
    """The further machines, and the bytes that models may take on each.

    Raises: UsageError, Refused, SpecdecError for one that does not answer.
    """
    with started(read_hosts(hosts)) as (found, *_):
        return [(machine.host, int(machine.facts["usable_bytes"])) for machine in found]


def work() -> None:
    """What this process does as a further rank, until rank 0 ends."""
    from specdec_cli.apps.several import rank

    rank.work()
