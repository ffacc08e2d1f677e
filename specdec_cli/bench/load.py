"""Loads what a bench needs: one target, and beside it every draft. Law: weights are read once."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from specdec_cli import __version__
from specdec_cli.bench.live import AnswerSettings, LiveMachine
from specdec_cli.bench.plan import MAX_TOKENS
from specdec_cli.bench.result import Contender, Environment
from specdec_cli.bench.run import BenchRequest, Subjects
from specdec_cli.engine import device
from specdec_cli.kinds import DRAFTERS, DrafterKind
from specdec_cli.machine import physical_bytes
from specdec_cli.request import Request
from specdec_cli.session.load import beside, load
from specdec_cli.session.session import Session


def load_machine(
    job: BenchRequest, cancelled: Callable[[], bool], tell: Callable[[str], None] = lambda sentence: None
) -> tuple[LiveMachine, Subjects]:
    """The loaded models, and what is true of them for the whole bench; `tell` hears of an unusual head.

    Raises: NotAvailable, Refused, DoesNotFit.
    """
    kinds = [DRAFTERS[name] for name in job.drafters]
    drafter = max(kinds, key=lambda kind: (kind.reads_hidden, kind.by_network))
    longest = max(len(prompt.text) for prompt in job.prompts) // 3 + (job.max_tokens or MAX_TOKENS)
    # Twice: plain decoding has caches of its own.
    reserve_tokens = None if job.force else 2 * longest
    pair = load(job.pair, drafter=drafter.name, reserve_tokens=reserve_tokens, tell=tell)
    first = pair.session(pair.first)
    others = [beside(pair, name) for name in job.drafts]
    sessions = {first.names[1]: first} | {other.names[1]: other.session(other.first) for other in others}
    settings = AnswerSettings(MAX_TOKENS, job.rule, job.seed, job.raw, job.fixed_length, job.constraint)
    machine = LiveMachine(sessions, settings, cancelled)
    held = job.constraint is not None
    networks = [kind for kind in kinds if kind.by_network]
    contenders = [Contender(who(kind, one), name, held) for kind in networks for name, one in sessions.items()]
    contenders += [Contender(kind.name, None, held) for kind in kinds if not kind.by_network]
    return machine, _about(first, tuple(dict.fromkeys(contenders)))


def who(kind: DrafterKind, session: Session) -> str:
    """The kind that really drafts: a head has one of its own."""
    return session.drafter(Request(drafter=kind.name)).name


def _about(session: Session, contenders: tuple[Contender, ...]) -> Subjects:
    environment = Environment(
        chip=_chip(),
        device=device.backend(),
        system=f"{platform.system()} {platform.release()}" if sys.platform != "darwin" else f"macOS {_macos()}",
        memory_bytes=physical_bytes(),
        cores=os.cpu_count() or 1,
        dtype=session.dtype,
        caches={"target": session.slot.target.cache_kinds},
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
