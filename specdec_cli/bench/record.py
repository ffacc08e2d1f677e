"""What `specdec bench --write` puts into models.toml (pure). Law: a loss is written down as K 0, not left out."""

from __future__ import annotations

from typing import Any

from specdec_cli import __version__
from specdec_cli.bench.report import Report
from specdec_cli.bench.result import Length, Result
from specdec_cli.errors import SpecdecError, UsageError


def chosen_k(result: Result, report: Report) -> Length:
    """The K that the pair is to start at.

    Raises: SpecdecError where there is none to write.
    """
    if result.partial:
        raise SpecdecError("nothing was written: the bench was interrupted", "run it to its end")
    if report.verdict.answer == "unknown":
        raise SpecdecError("nothing was written: no K could be recommended", "give it a larger --time-budget")
    return report.verdict.k if report.verdict.answer == "use" else 0


def entry(result: Result, report: Report) -> dict[str, Any]:
    """One entry of `measured`."""
    verdict, environment = report.verdict, result.environment
    speedup = verdict.speedup
    versions = {name: environment.versions[name] for name in ("mlx", "mlx-lm") if name in environment.versions}
    return {
        "chip": environment.chip,
        "k": chosen_k(result, report),
        "speedup": speedup and round(speedup.mean, 3),
        "low": speedup and round(speedup.low, 3),
        "high": speedup and round(speedup.high, 3),
        "prompts": speedup and speedup.prompts,
        "temperature": verdict.condition.temperature,
        "date": environment.date[:10],
        "specdec": __version__,
        **versions,
    }


def require_pair(named: bool, drafts: int, drafters: int, temperatures: int) -> None:
    """Before two minutes are spent.

    Raises: UsageError where there is no entry to write to, or more than one thing to write.
    """
    if not named:
        raise UsageError(
            "--write needs a pair by name, and this one was named by its models",
            "specdec pairs add NAME --target ID --draft ID, then specdec bench -p NAME --write",
        )
    if drafts or drafters > 1 or temperatures > 1:
        raise UsageError(
            "--write keeps one K, for the pair's own draft at one temperature",
            "leave out --draft, further --drafter and further --temp",
        )
