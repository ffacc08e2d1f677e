"""What `specdec bench --write` puts into models.toml (pure). Law: a loss is written as K 0, never left out."""

from __future__ import annotations

from typing import Any

from specdec_cli import __version__
from specdec_cli.bench.report import Report
from specdec_cli.bench.result import BenchResult, Length
from specdec_cli.bench.sentences import conclusion
from specdec_cli.errors import SpecdecError, UsageError


def chosen_k(result: BenchResult, report: Report) -> Length:
    """The K that the pair starts with from now on.

    Raises: SpecdecError where the result recommends none.
    """
    if result.partial:
        raise SpecdecError("nothing was written: the bench was interrupted", "run it to its end")
    if report.recommendation.answer == "unknown":
        raise SpecdecError(f"nothing was written: {conclusion(report)}", "give it more prompts: --prompts FILE")
    return report.recommendation.chosen


def entry(result: BenchResult, report: Report) -> dict[str, Any]:
    """One entry of `measured`."""
    advice, environment = report.recommendation, result.environment
    speedup = advice.speedup
    versions = {name: environment.versions[name] for name in ("mlx", "mlx-lm") if name in environment.versions}
    return {
        "chip": environment.chip,
        "k": chosen_k(result, report),
        "drafter": report.condition.contender.drafter,
        "speedup": speedup and round(speedup.mean, 3),
        "low": speedup and round(speedup.low, 3),
        "high": speedup and round(speedup.high, 3),
        "prompts": speedup and speedup.prompts,
        "temperature": advice.condition.temperature,
        "date": environment.date[:10],
        "specdec": __version__,
        **versions,
    }


def require_pair(named: bool, drafts: int, drafters: int, temperatures: int) -> None:
    """Checks --write before any time is spent.

    Raises: UsageError where the pair has no entry, or there is more than one K to write.
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
