"""The sentences of a bench report, its JSON, and its entry in models.toml (pure).

Each sentence carries its figures, and none claims more than was measured. A loss is written as K 0, never left out.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from specdec_cli.bench.estimate import FEWEST_PROMPTS, Interval
from specdec_cli.bench.report import Report, Row, reports
from specdec_cli.bench.result import BenchResult, Length, to_dict
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.format import count
from specdec_cli.gain import ratio_words
from specdec_cli.kinds import DEFAULT_DRAFTER
from specdec_cli.machine import MachineState

# A baseline whose speed changed by more makes the intervals doubtful.
DRIFTED = 0.05
# Passes of several rows whose cost in plain steps changed by more: a hot machine, and another K than a cool one's.
ROWS_DRIFTED = 0.10
# Between a number and its unit, so that no line breaks there.
NARROW = "\u00a0"


def conclusion(report: Report) -> str:
    """The recommendation in one sentence."""
    advice = report.recommendation
    if advice.speedup is None:
        measured = count(len(report.prompts), "prompt")
        return f"K {advice.k}, the safest choice: {measured} measured, and an interval needs {FEWEST_PROMPTS}"
    figure = f"K {advice.k}: {times(advice.speedup)}, on {advice.speedup.prompts} prompts"
    if advice.answer == "use":
        return figure + (f"; {_listed(advice.tied)} no faster beyond noise" if advice.tied else "")
    if advice.answer == "safest":
        return f"{figure}; no K is faster beyond noise, and auto stops drafting where it does not pay"
    return f"plain decoding (K 0): no K is faster beyond noise; the best, {figure}"


def break_even(report: Report) -> str:
    """The acceptance that the recommended or best K needs, and the acceptance found."""
    k, curve = report.recommendation.k, report.curve
    if curve is None or not isinstance(k, int) or k not in curve.draft:
        return ""
    needed, found = curve.break_even(k), report.sum_rounds(k).judged_rate
    cost = f"K {k} costs {curve.round(k):.2f} plain steps a round"
    if needed is None:
        return f"{cost}, more than the {k + 1} tokens it can yield: it cannot pay here"
    here = "" if found is None else f"; here {found:.0%} were"
    return f"{cost}: it pays where more than {needed:.0%} of judged tokens are accepted{here}".replace(
        "%", f"{NARROW}%"
    )


def drifted(result: BenchResult) -> bool:
    """Whether the machine changed so much that the figures are in doubt."""
    return abs(result.drift or 0.0) > DRIFTED or abs(result.row_drift or 0.0) > ROWS_DRIFTED


def surroundings(result: BenchResult) -> str:
    """Drift, power, heat and load: how steady the machine was."""
    before, after = result.environment.before, result.environment.after
    drift = result.drift
    parts = []
    if drift is not None:
        parts.append(
            f"baseline {100 * drift:+.1f}{NARROW}% from first to last" + (" (!)" if abs(drift) > DRIFTED else "")
        )
    rows = result.row_drift
    if rows is not None and abs(rows) > ROWS_DRIFTED:
        parts.append(f"passes of several rows {100 * rows:+.0f}{NARROW}% in plain steps (!): try --cooldown 10s")
    parts += [f"on {power}" for power in _changes(before.power, after.power)]
    low = _changes(_switch(before.low_power_mode), _switch(after.low_power_mode))
    parts += [f"low-power mode {state}" for state in low]
    parts += [f"thermal pressure {state}" for state in _changes(before.thermal, after.thermal)]
    parts += _loads(before, after, result.environment.cores)
    return ", ".join(parts)


def command(result: BenchResult, report: Report) -> str:
    """The next command to type."""
    k, temperature = report.recommendation.chosen, report.condition.temperature
    option = f" --temp {temperature:g}" if temperature else ""
    usual = DEFAULT_DRAFTER if k else report.condition.contender.drafter  # nobody drafts at K = 0
    return f"specdec run {_models(result, report, usual)} -k {k}{option} 'your prompt'"


def times(interval: Interval) -> str:
    """`1.42× faster (1.38–1.46)`."""
    return ratio_words(interval.mean, interval.low, interval.high)


def _models(result: BenchResult, report: Report, usual: str) -> str:
    """The options that name this pair and its drafter, which is left out if it is the `usual` one."""
    settings, contender = result.settings, report.condition.contender
    own = settings.contenders[0].draft if settings.contenders else None
    if settings.named and contender.draft in (None, own):
        chosen = f"-p {shlex.quote(settings.pair)}"
    else:
        draft = f" --draft {shlex.quote(contender.draft)}" if contender.draft else ""
        chosen = f"--target {shlex.quote(settings.target)}{draft}"
    return chosen + (f" --drafter {contender.drafter}" if contender.drafter != usual else "")


def spread(interval: Interval, digits: int) -> str:
    """`1.42 ±0.04`; the mean alone of too few prompts, and `±?` where the interval is wider than the mean."""
    mean = f"{interval.mean:.{digits}f}"
    if interval.prompts < FEWEST_PROMPTS:
        return mean
    return f"{mean} ±{'?' if _unknown(interval) else f'{interval.half_width:.{digits}f}'}"


def _unknown(interval: Interval | None) -> bool:
    """Whether the interval is wider than its mean: it says nothing."""
    return interval is not None and interval.prompts >= FEWEST_PROMPTS and interval.half_width > interval.mean


def mark(row: Row) -> str:
    """What stands before a figure of too few prompts."""
    return "?" if row.source == "too few" else ""


def marks(report: Report) -> list[str]:
    """What the marks mean, of those that this report shows."""
    speedups = [*(row.speedup for row in report.rows), *(row.speedup for row in report.kinds)]
    parts = [f"? of fewer than {FEWEST_PROMPTS} prompts"] if any(map(mark, report.rows)) else []
    if any(map(_unknown, [*(row.tokens_per_second for row in report.rows), *speedups])):
        parts.append("±? wider than the figure itself")
    return parts


def _listed(ks: Sequence[Length]) -> str:
    return " and ".join(f"K {k}" for k in ks) + (" is" if len(ks) == 1 else " are")


def _switch(on: bool | None) -> str | None:
    return None if on is None else "on" if on else "off"


def _changes(before: str | None, after: str | None) -> list[str]:
    """One state, two if it changed, none if nothing is known."""
    known = [state for state in dict.fromkeys((before, after)) if state is not None]
    return [" then ".join(known)] if known else []


def _loads(before: MachineState, after: MachineState, cores: int) -> list[str]:
    known = [f"{state.load:.1f}" for state in (before, after) if state.load is not None]
    return [f"load {' then '.join(known)} on {cores} cores"] if known else []


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
    named = ("specdec", "mlx", "mlx-lm")
    versions = {name: environment.versions[name] for name in named if name in environment.versions}
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


def json_text(result: BenchResult) -> str:
    """Every measurement, and the figures derived from them under `report`."""
    values = to_dict(result) | {"report": [_report_dict(report) for report in reports(result)]}
    return json.dumps(_finite(values), indent=1) + "\n"


def _report_dict(report: Report) -> dict[str, Any]:
    curve = report.curve
    return {
        "condition": asdict(report.condition),
        "verdict": asdict(report.recommendation) | {"chosen": report.recommendation.chosen, "told": conclusion(report)},
        "rows": [asdict(row) | {"source": row.source} for row in report.rows],
        "kinds": [asdict(row) | {"source": row.source} for row in report.kinds],
        "draft_steps": curve and dict(curve.draft),
        "verify_steps": curve and dict(curve.verify),
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: an infinite bound becomes null."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
