"""What makes this process one of several ranks, or the one that starts them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from specdec_cli.core.errors import Refused, UsageError

# What `mlx.launch` and `--hosts` set in the environment of each rank.
RANK = "MLX_RANK"
# What a launcher of several ranks starts in vain.
ON_ONE_MACHINE = ("bench", "serve", "race", "tune")


def take_part(hosts: str | None, kv_bits: int | None = None) -> bool:
    """Returns in the process that goes on with the command: False in the only one, True in rank 0. Others end here.

    Raises: UsageError, Refused, SpecdecError where a rank does not start or is lost.
    """
    rank = os.environ.get(RANK)
    if rank is None and hosts is None:
        return False
    _require_whole_caches(kv_bits)
    if rank is None:
        raise typer.Exit(several("launch").start(hosts, sys.argv[1:]))
    if rank != "0":
        several("rank").work()
        raise typer.Exit
    return True


def several(module: str) -> Any:
    """A module of the app of several machines, by its name: commands work without that app. Raises: UsageError."""
    try:
        return import_module(f"specdec_cli.apps.several.{module}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("specdec_cli.apps"):
            raise
        hint = "install it whole, in its checkout: uv tool install ."
        raise UsageError("this specdec runs on one machine", hint) from error


def _require_whole_caches(kv_bits: int | None) -> None:
    if kv_bits is not None:
        raise Refused(f"--kv-bits {kv_bits} and several machines were asked for", "leave one of them out")


def machine_bytes(hosts: str | None, kv_bits: int | None) -> list[tuple[str, int]]:
    """The further machines, and the bytes that models may take on each; none where none are named.

    Raises: UsageError, Refused, SpecdecError for one that does not answer.
    """
    if hosts is None:
        return []
    _require_whole_caches(kv_bits)
    found: list[tuple[str, int]] = several("launch").usable_bytes(hosts)
    return found


def require_shareable(command: str | None) -> None:
    """Raises: UsageError where a launcher started this process as a rank, for a command that runs on one machine."""
    if RANK in os.environ and command in ON_ONE_MACHINE:
        raise on_one_machine(command, RANK, [RANK, os.environ[RANK]])


def on_one_machine(command: str, option: str, arguments: Sequence[str]) -> UsageError:
    """The refusal of an `option` that names several machines, for a command that runs on one."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = " ".join(words[words.index(option) :][:2])
    hint = "run, chat and audit share a target: specdec help several-machines"
    return UsageError(f"specdec {command} runs on one machine, and {given} names several", hint)
