"""The sentences of a bench report (pure). Law: each carries its figures, and none says more than was measured."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.recommend import RULE, Verdict
from specdec_cli.bench.report import Report
from specdec_cli.bench.result import Length, Result
from specdec_cli.format import percent
from specdec_cli.machine import MachineState

# A baseline that moved by more makes intervals doubtful.
DRIFTED = 0.05
# Between a number and its unit: no line ends there.
NARROW = "\u00a0"
# A best speed-up of this much may well be real, although its interval includes 1.
PROMISING = 1.03


def conclusion(report: Report) -> str:
    """The recommendation in one sentence."""
    verdict = report.verdict
    if verdict.answer == "unknown":
        least = f"fewer than {FEWEST_PROMPTS} prompts were confirmed"
        return f"no recommendation: {least}; more prompts or a larger --time-budget are needed"
    if verdict.speedup is None:
        return ""
    measured = f"{times(verdict.speedup)}, measured on {verdict.speedup.prompts} prompts"
    if verdict.answer == "don't":
        return f"don't use this draft for this: at best K {verdict.k} came to {measured}" + _maybe(verdict)
    same = f"; {_listed(verdict.tied)} no faster beyond noise" if verdict.tied else ""
    return f"{length(verdict.k)}: {measured}{same}"


def reason(report: Report) -> str:
    """Why the recommended K, or the best, is where it is: what one more drafted token adds, and what it costs."""
    k, curve = report.verdict.k, report.curve
    if curve is None or not isinstance(k, int) or k == 0 or k + 1 not in curve.draft:
        return ""
    here, there = report.tally(k), report.tally(k + 1)
    if not here.rounds or not there.rounds:
        return ""
    tokens, more_tokens = here.emitted / here.rounds, there.emitted / there.rounds
    cost, more_cost = here.seconds / here.rounds, there.seconds / there.rounds
    gain, price = more_tokens / tokens - 1, more_cost / cost - 1
    gained = f"one more draft token adds {_two(more_tokens - tokens)} to the {tokens:.2f} tokens of a round"
    paid = f"{_two(more_cost - cost)} to its {cost:.2f} plain steps"
    return f"{gained} ({percent(gain, sign='+', space=NARROW)}) and {paid} ({percent(price, sign='+', space=NARROW)})"


def break_even(report: Report) -> str:
    """The acceptance that the recommended or best K needs, beside what was found."""
    k, curve = report.verdict.k, report.curve
    if curve is None or not isinstance(k, int) or k not in curve.draft:
        return ""
    needed, found = curve.break_even(k), report.tally(k).judged_rate
    cost = f"K {k} costs {curve.round(k):.2f} plain steps a round"
    if needed is None:
        return f"{cost}, more than the {k + 1} tokens it can yield: it cannot pay here"
    here = "" if found is None else f"; here {found:.0%} were"
    return f"{cost}: it pays where more than {needed:.0%} of judged tokens are accepted{here}".replace(
        "%", f"{NARROW}%"
    )


def surroundings(result: Result) -> str:
    """Drift, power, heat and load: how far the machine kept still."""
    before, after = result.environment.before, result.environment.after
    drift = result.drift
    parts = []
    if drift is not None:
        parts.append(
            f"baseline {100 * drift:+.1f}{NARROW}% from first to last" + (" (!)" if abs(drift) > DRIFTED else "")
        )
    parts += [f"on {power}" for power in _changes(before.power, after.power)]
    low = _changes(_switch(before.low_power_mode), _switch(after.low_power_mode))
    parts += [f"low-power mode {state}" for state in low]
    parts += [f"thermal pressure {state}" for state in _changes(before.thermal, after.thermal)]
    parts += _loads(before, after, result.environment.cores)
    return ", ".join(parts)


def command(result: Result, report: Report) -> str:
    """What to type from now on."""
    verdict, settings = report.verdict, result.settings
    if verdict.answer == "unknown":
        return f"specdec bench {_models(result, report, bench=True)} --time-budget {_longer(settings.budget_seconds)}"
    k = verdict.k if verdict.answer == "use" else 0
    heat = f" --temp {verdict.condition.temperature:g}" if verdict.condition.temperature else ""
    return f"specdec run {_models(result, report, bench=False)} -k {k}{heat} 'your prompt'"


def rule() -> str:
    """By what the K was chosen."""
    return RULE


def times(interval: Interval) -> str:
    """`1.42× (1.38 to 1.46)`."""
    return f"{interval.mean:.2f}× ({interval.low:.2f} to {interval.high:.2f})"


def length(k: Length) -> str:
    return f"K {k}"


def _models(result: Result, report: Report, *, bench: bool) -> str:
    import shlex

    settings, contender = result.settings, report.condition.contender
    own = settings.contenders[0].draft if settings.contenders else None
    if settings.named and contender.draft in (None, own):
        chosen = f"-p {shlex.quote(settings.pair)}"
    else:
        draft = f" --draft {shlex.quote(contender.draft)}" if contender.draft else ""
        chosen = f"--target {shlex.quote(settings.target)}{draft}"
    return chosen + (f" --drafter {contender.drafter}" if contender.drafter != "model" else "")


def _longer(budget_seconds: float) -> str:
    return f"{max(int(budget_seconds * 3 / 60), 1)}m"


def _two(number: float) -> str:
    """Two digits, and no -0.00."""
    return f"{round(number, 2) + 0.0:.2f}"


def spread(interval: Interval, digits: int) -> str:
    """`1.42 ±0.04`; the mean alone of too few prompts, and `±>` where the interval is wider than the mean."""
    mean = f"{interval.mean:.{digits}f}"
    if interval.prompts < FEWEST_PROMPTS:
        return mean
    wide = interval.half_width > interval.mean
    return f"{mean} ±{'>' if wide else ''}{min(interval.half_width, interval.mean):.{digits}f}"


def _maybe(verdict: Verdict) -> str:
    promising = verdict.speedup is not None and verdict.speedup.mean > PROMISING
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
