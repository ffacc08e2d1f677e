"""The sentences of a bench report (pure). Law: each carries its figures; none claims more than was measured."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.recommend import RULE
from specdec_cli.bench.report import Report
from specdec_cli.bench.result import BenchResult, Length
from specdec_cli.bench.rows import Row
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
        return f"{length(advice.k)}, the safest choice: {measured} measured, and an interval needs {FEWEST_PROMPTS}"
    figure = f"{length(advice.k)}: {times(advice.speedup)}, on {advice.speedup.prompts} prompts"
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
    needed, found = curve.break_even(k), report.totals(k).judged_rate
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


def rule() -> str:
    """The rule by which K was chosen."""
    return RULE


def times(interval: Interval) -> str:
    """`1.42× faster (1.38–1.46)`."""
    return ratio_words(interval.mean, interval.low, interval.high)


def length(k: Length) -> str:
    return f"K {k}"


def _models(result: BenchResult, report: Report, usual: str) -> str:
    """The options that name this pair and its drafter, which is left out if it is the `usual` one."""
    import shlex

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
    return " and ".join(map(length, ks)) + (" is" if len(ks) == 1 else " are")


def _switch(on: bool | None) -> str | None:
    return None if on is None else "on" if on else "off"


def _changes(before: str | None, after: str | None) -> list[str]:
    """One state, two if it changed, none if nothing is known."""
    known = [state for state in dict.fromkeys((before, after)) if state is not None]
    return [" then ".join(known)] if known else []


def _loads(before: MachineState, after: MachineState, cores: int) -> list[str]:
    known = [f"{state.load:.1f}" for state in (before, after) if state.load is not None]
    return [f"load {' then '.join(known)} on {cores} cores"] if known else []
