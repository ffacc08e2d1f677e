"""What makes this process one of several ranks, or the one that starts them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from specdec_cli.command.options import HostOptions
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
        raise typer.Exit(several("launch").start(machines.hosts, sys.argv[1:]))
    if rank != "0":
        several("rank").work()
        raise typer.Exit


def several(module: str) -> Any:
    """A module of the app of several machines, by its name: commands work without that app. Raises: UsageError."""
    try:
        return import_module(f"specdec_cli.apps.several.{module}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("specdec_cli.apps"):
            raise
        raise UsageError("this specdec runs on one machine", "install it whole: pip install specdec-cli") from error


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
    found: list[tuple[str, int]] = several("launch").usable_bytes(machines.hosts)
    return found


def on_one_machine(command: str, option: str, arguments: Sequence[str]) -> UsageError:
    """The refusal of an `option` that names several machines, for a command that runs on one."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = " ".join(words[words.index(option) :][:2])
    hint = "run, chat and audit share a target: specdec help several-machines"
    return UsageError(f"specdec {command} runs on one machine, and {given} names several", hint)
