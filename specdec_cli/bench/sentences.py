"""The sentences of a bench report (pure). Law: each carries its figures; none claims more than was measured."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.recommend import RULE, Recommendation
from specdec_cli.bench.report import Report
from specdec_cli.bench.result import BenchResult, Length
from specdec_cli.bench.rows import KindRow, Row
from specdec_cli.format import percent
from specdec_cli.kinds import DEFAULT_DRAFTER, MODEL
from specdec_cli.machine import MachineState

# A baseline whose speed changed by more makes the intervals doubtful.
DRIFTED = 0.05
# Passes of several rows whose cost in plain steps changed by more: a hot machine, and another K than a cool one's.
ROWS_DRIFTED = 0.10
# Between a number and its unit, so that no line breaks there.
NARROW = "\u00a0"
# A speed-up of at least this may be real although its interval includes 1.
PROMISING = 1.03


def conclusion(report: Report) -> str:
    """The recommendation in one sentence."""
    advice = report.recommendation
    if advice.answer == "unknown":
        least = f"fewer than {FEWEST_PROMPTS} prompts were confirmed"
        return f"no recommendation: {least}; more prompts or a larger --time-budget are needed"
    if advice.speedup is None:
        return ""
    measured = f"{times(advice.speedup)}, measured on {advice.speedup.prompts} prompts"
    if advice.answer == "don't":
        return f"don't use this draft for this: the best, K {advice.k}, reached {measured}" + _maybe(advice)
    same = f"; {_listed(advice.tied)} no faster beyond noise" if advice.tied else ""
    return f"{length(advice.k)}: {measured}{same}"


def reason(report: Report) -> str:
    """Why this K and not one more: what one more drafted token adds, and what it costs."""
    k, curve = report.recommendation.k, report.curve
    if curve is None or not isinstance(k, int) or k == 0 or k + 1 not in curve.draft:
        return ""
    here, there = report.totals(k), report.totals(k + 1)
    if not here.rounds or not there.rounds:
        return ""
    tokens, more_tokens = here.emitted / here.rounds, there.emitted / there.rounds
    cost, more_cost = here.seconds / here.rounds, there.seconds / there.rounds
    gain, price = more_tokens / tokens - 1, more_cost / cost - 1
    gained = f"one more draft token adds {_two(more_tokens - tokens)} to the {tokens:.2f} tokens of a round"
    paid = f"{_two(more_cost - cost)} to its {cost:.2f} plain steps"
    return f"{gained} ({percent(gain, sign='+', space=NARROW)}) and {paid} ({percent(price, sign='+', space=NARROW)})"


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
    advice, settings = report.recommendation, result.settings
    if advice.answer == "unknown":
        return f"specdec bench {_models(result, report, MODEL.name)} --time-budget {_longer(settings.budget_seconds)}"
    k = advice.k if advice.answer == "use" else 0
    temperature = advice.condition.temperature
    option = f" --temp {temperature:g}" if temperature else ""
    usual = DEFAULT_DRAFTER if k else report.condition.contender.drafter  # nobody drafts at K = 0
    return f"specdec run {_models(result, report, usual)} -k {k}{option} 'your prompt'"


def rule() -> str:
    """The rule by which K was chosen."""
    return RULE


def times(interval: Interval) -> str:
    """`1.42× (1.38 to 1.46)`."""
    return f"{interval.mean:.2f}× ({interval.low:.2f} to {interval.high:.2f})"


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


def _longer(budget_seconds: float) -> str:
    return f"{max(int(budget_seconds * 3 / 60), 1)}m"


def _two(number: float) -> str:
    """Two digits, and no -0.00."""
    return f"{round(number, 2) + 0.0:.2f}"


def spread(interval: Interval, digits: int) -> str:
    """`1.42 ±0.04`; the mean alone of too few prompts, and `±?` where the interval is wider than the mean."""
    mean = f"{interval.mean:.{digits}f}"
    if interval.prompts < FEWEST_PROMPTS:
        return mean
    return f"{mean} ±{'?' if _unknown(interval) else f'{interval.half_width:.{digits}f}'}"


def _unknown(interval: Interval | None) -> bool:
    """Whether the interval is wider than its mean: it says nothing."""
    return interval is not None and interval.prompts >= FEWEST_PROMPTS and interval.half_width > interval.mean


def mark(row: Row | KindRow) -> str:
    """What stands before a figure that was not measured."""
    return {"predicted": "~", "too few": "?"}.get(row.source, "")


def marks(report: Report) -> list[str]:
    """What the marks mean, of those that this report shows."""
    rows: list[Row | KindRow] = [*report.rows, *report.kinds]
    found, paces = {mark(row) for row in rows}, [row.tokens_per_second for row in report.rows]
    parts = ["~ predicted from offline acceptance and measured costs"] if "~" in found else []
    if "?" in found:
        parts.append(f"? of fewer than {FEWEST_PROMPTS} prompts")
    if any(map(_unknown, [*paces, *(row.speedup for row in rows)])):
        parts.append("±? wider than the figure itself")
    return parts


def _maybe(advice: Recommendation) -> str:
    promising = advice.speedup is not None and advice.speedup.mean > PROMISING
    return "; the interval includes 1, and a larger --time-budget would narrow it" if promising else ""


def _listed(ks: Sequence[Length]) -> str:
    return " and ".join(map(length, ks)) + (" was" if len(ks) == 1 else " were")


def _switch(on: bool | None) -> str | None:
    return None if on is None else "on" if on else "off"


def _changes(before: str | None, after: str | None) -> list[str]:
    """One state, two if it changed, none if nothing is known."""
    known = [state for state in dict.fromkeys((before, after)) if state is not None]
    return [" then ".join(known)] if known else []


def _loads(before: MachineState, after: MachineState, cores: int) -> list[str]:
    known = [f"{state.load:.1f}" for state in (before, after) if state.load is not None]
    return [f"load {' then '.join(known)} on {cores} cores"] if known else []
