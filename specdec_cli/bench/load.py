"""Loads what a bench needs: one target, and beside it every draft. Law: weights are read once."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from specdec_cli import __version__
from specdec_cli.bench.live import Asked, LiveMachine
from specdec_cli.bench.plan import MAX_TOKENS
from specdec_cli.bench.result import Contender, Environment
from specdec_cli.bench.run import BenchRequest, Subjects
from specdec_cli.bench.session import BenchSession
from specdec_cli.engine import device
from specdec_cli.machine import physical_bytes
from specdec_cli.session.session import open_session


def load_machine(job: BenchRequest, cancelled: Callable[[], bool]) -> tuple[LiveMachine, Subjects]:
    """The loaded models, and what is true of them for the whole bench.

    Raises: NotAvailable, Refused, DoesNotFit.
    """
    drafter = next((name for name in job.drafters if name != "ngram"), "ngram")
    longest = max(len(prompt.text) for prompt in job.prompts) // 3 + (job.max_tokens or MAX_TOKENS)
    # Twice: plain decoding has caches of its own.
    first = BenchSession.of(open_session(job.pair, drafter, room_tokens=None if job.force else 2 * longest))
    sessions = {first.names[1]: first} | {name: first.beside(name) for name in job.drafts}
    machine = LiveMachine(sessions, Asked(MAX_TOKENS, job.rule, job.seed, job.raw, job.fixed_length), cancelled)
    contenders = [Contender(kind, name) for kind in job.drafters if kind != "ngram" for name in sessions]
    if "ngram" in job.drafters:
        contenders.append(Contender("ngram"))
    return machine, _about(first, tuple(contenders))


def _about(session: BenchSession, contenders: tuple[Contender, ...]) -> Subjects:
    environment = Environment(
        chip=_chip(),
        device=device.backend(),
        system=f"{platform.system()} {platform.release()}" if sys.platform != "darwin" else f"macOS {_macos()}",
        memory_bytes=physical_bytes(),
        cores=os.cpu_count() or 1,
        dtype=session.dtype,
        caches=session.caches,
        versions={"specdec": __version__, "python": platform.python_version(), **device.versions()},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return Subjects(contenders, environment)


def _macos() -> str:
    return platform.mac_ver()[0]


def _chip() -> str:
    """The device's own name; on a plain CPU the processor's, where the system tells it."""
    if device.backend() == "cpu" and sys.platform.startswith("linux"):
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
        return name or device.device_name()
    return device.device_name()
