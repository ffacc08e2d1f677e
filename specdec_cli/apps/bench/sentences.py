"""The sentences of a bench report, its JSON, and its entry in models.toml (pure).

Each sentence carries its figures, and none claims more than was measured. A loss is written as K 0, never left out.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from math import isfinite
from typing import Any

from specdec_cli.apps.bench.report import LengthRow, Report, reports
from specdec_cli.apps.bench.result import BenchResult, Length, to_dict
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.format import count
from specdec_cli.core.gain import break_even_acceptance, ratio_words
from specdec_cli.core.kinds import DEFAULT_DRAFTER, DEFAULT_RULE
from specdec_cli.core.request import DRAFT_CONTEXT
from specdec_cli.measure.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.system.machine import BUSY, is_busy

# A baseline whose speed changed by more makes the intervals doubtful.
DRIFTED = 0.05
# Passes of several rows whose cost in plain steps changed by more: a hot machine, and another K than a cool one's.
ROWS_DRIFTED = 0.10


def conclusion(report: Report) -> str:
    """The recommendation in one sentence."""
    advice = report.recommendation
    if advice.speedup is None:
        measured = count(len(report.prompts), "prompt")
        return f"K {advice.k}, the safest choice: {measured} measured, and an interval needs {FEWEST_PROMPTS}"
    words = ratio_words(advice.speedup.mean, advice.speedup.low, advice.speedup.high)
    figure = f"K {advice.k}: {words}, on {advice.speedup.prompts} prompts"
    if advice.answer == "safest":
        return f"{figure}; no K is clearly faster, and auto stops drafting where it does not pay"
    if advice.answer == "don't":
        return f"plain decoding (K 0): no K is clearly faster; the best, {figure}"
    tied = " and ".join(f"K {k}" for k in advice.tied) + (" is" if len(advice.tied) == 1 else " are")
    return f"{figure}; {tied} not clearly faster" if advice.tied else figure


def break_even(report: Report) -> str:
    """The acceptance that the recommended or best K needs, and the acceptance found."""
    k, curve = report.recommendation.k, report.curve
    if curve is None or not isinstance(k, int) or k not in curve.draft:
        return ""
    needed, found = break_even_acceptance(curve.round(k), k), next(row.judged_rate for row in report.rows if row.k == k)
    cost = f"a round at K {k} takes the time of {curve.round(k):.2f} plain tokens"
    if needed is None:
        return f"{cost}, more than the {k + 1} tokens it can yield: it cannot pay here"
    here = "" if found is None else f"; here {100 * found:.0f} % were"
    return f"{cost}: it pays where more than {100 * needed:.0f} % of judged tokens are accepted{here}"


def drifted(result: BenchResult) -> bool:
    """Whether the machine changed so much that the figures are in doubt."""
    return abs(result.drift or 0.0) > DRIFTED or abs(result.row_drift or 0.0) > ROWS_DRIFTED


def busy(result: BenchResult) -> str:
    """What to say beside the result where other programs had the cores; the bench itself takes them all, but no more.

    The load before it is theirs alone, the load after it is theirs and its own.
    """
    before, after, cores = result.environment.before.load, result.environment.after.load, result.environment.cores
    return BUSY if is_busy(before, cores) or is_busy(after, cores + 1 if cores else None) else ""


def surroundings(result: BenchResult) -> str:
    """Drift, power, heat and load: how steady the machine was. A state that changed is told twice."""
    states, parts = (result.environment.before, result.environment.after), []
    drift, rows = result.drift, result.row_drift
    if drift is not None:
        doubt = " (!)" if abs(drift) > DRIFTED else ""
        parts.append(f"baseline {100 * drift:+.1f} % from first to last{doubt}")
    if rows is not None and abs(rows) > ROWS_DRIFTED:
        parts.append(f"passes of several rows {100 * rows:+.0f} % in time (!): try --cooldown 10s")
    told: list[tuple[str, list[str | None]]] = [
        ("on", [state.power for state in states]),
        ("low-power mode", [{None: None, True: "on", False: "off"}[state.low_power_mode] for state in states]),
        ("thermal pressure", [state.thermal for state in states]),
        ("load", [None if state.load is None else f"{state.load:.1f}" for state in states]),
    ]
    for name, values in told:
        if known := [value for value in dict.fromkeys(values) if value is not None]:
            parts.append(f"{name} {' then '.join(known)}" + f" on {result.environment.cores} cores" * (name == "load"))
    return ", ".join(parts)


def command(report: Report) -> str:
    """The next command to type: the pair, what was measured that is not its own or the usual one, K and temperature."""
    settings, contender = report.result.settings, report.condition.contender
    k, temperature = report.recommendation.chosen, report.condition.temperature
    if settings.named and contender.draft in (None, settings.contenders[0].draft):
        models, own_context = f"-p {shlex.quote(settings.pair)}", settings.own_context
    else:
        words = ["-p", settings.pair] if settings.of_a_pair else ["--target", settings.target]
        words += ["--draft", contender.draft] if contender.draft else []
        models, own_context = shlex.join(words), settings.draft_context == DRAFT_CONTEXT
    context = ""
    if settings.draft_context is not None and not own_context:
        context = f"SPECDEC_DRAFT_CONTEXT={settings.draft_context} "
    models += f" --rule {settings.rule}" * (settings.rule != DEFAULT_RULE)
    drafter = f" --drafter {contender.drafter}" if k != 0 and contender.drafter != DEFAULT_DRAFTER else ""
    option = f" --temp {temperature:g}" * bool(temperature) + " --raw" * settings.raw
    return f"{context}specdec run {models}{drafter} -k {k}{option} 'your prompt'"


def spread(interval: Interval | None, digits: int) -> str:
    """`1.42 ±0.04`; the mean alone of too few prompts, and where the interval is wider than the mean."""
    if interval is None:
        return "–"
    mean = f"{interval.mean:.{digits}f}"
    vague = interval.prompts < FEWEST_PROMPTS or interval.half_width > interval.mean
    return mean if vague else f"{mean} ±{interval.half_width:.{digits}f}"


def chosen_k(report: Report) -> Length:
    """The K that the pair starts with from now on.

    Raises: SpecdecError where the result recommends none.
    """
    if report.result.partial:
        raise SpecdecError("nothing was written: the bench was interrupted", "run it to its end")
    if report.recommendation.answer == "unknown":
        raise SpecdecError(f"nothing was written: {conclusion(report)}", "give it more prompts: --prompts FILE")
    return report.recommendation.chosen


def entry(report: Report) -> dict[str, Any]:
    """One entry of `measured` in models.toml."""
    advice, environment = report.recommendation, report.result.environment
    speedup = advice.speedup
    named = ("specdec", "mlx", "mlx-lm")
    return {
        "chip": environment.chip,
        "k": chosen_k(report),
        "drafter": report.condition.contender.drafter,
        "draft_context": report.result.settings.draft_context,
        "speedup": speedup and round(speedup.mean, 3),
        "low": speedup and round(speedup.low, 3),
        "high": speedup and round(speedup.high, 3),
        "prompts": speedup and speedup.prompts,
        "temperature": advice.condition.temperature,
        "date": environment.date[:10],
        **{name: environment.versions[name] for name in named if name in environment.versions},
    }


def json_text(result: BenchResult) -> str:
    """Every measurement, and the figures derived from them under `report`."""
    derived = []
    for report in reports(result):
        advice, curve = report.recommendation, report.curve
        derived.append({
            "condition": asdict(report.condition),
            "verdict": asdict(advice) | {"chosen": advice.chosen, "told": conclusion(report)},
            "rows": [row_values(row) for row in report.rows],
            "kinds": [row_values(row) for row in report.kinds],
            "draft_steps": curve and dict(curve.draft),
            "verify_steps": curve and dict(curve.verify),
        })  # fmt: skip
    return json.dumps(_finite(to_dict(result) | {"report": derived}), indent=1) + "\n"


def row_values(row: LengthRow) -> dict[str, Any]:
    """JSON-ready; the ends of an interval of too few prompts are null."""
    values = asdict(row) | {"source": row.source}
    for name in ("speedup", "tokens_per_second"):
        if interval := getattr(row, name):
            values[name] |= dict(zip(("low", "high"), interval.bounds, strict=True))
    return values


def _finite(value: Any) -> Any:
    """JSON has no infinity: an infinite bound becomes null."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
