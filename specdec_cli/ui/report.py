"""A report of `specdec doctor` on one screen (pure). What was not measured says so, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from specdec_cli.format import UNKNOWN, size
from specdec_cli.gain import ratio_words

Row = tuple[str, str, str]
Facts = Mapping[str, Any]
# Load a core, before anything runs, from which on other programs are felt.
BUSY = 0.5
# A ratio's interval that reaches further has no end.
UNBOUNDED = 100.0
NOTHING_PRIVATE = (
    "It holds no prompt and no answer, and neither your name, this machine's name nor a path of your home."
)


def report_rows(report: Facts) -> list[Row]:
    """(what, value, note) of every line, from the JSON object."""
    parts, pair = report["parts"], report["pair"]
    data: dict[str, Facts] = {part["name"]: part["data"] for part in parts}
    machine, after = data.get("machine", {}), data.get("machine after", {})
    state = machine.get("state", {})
    models = f"{pair['target']} with {pair['draft']}" if pair["draft"] else str(pair["target"])
    on = f"{machine.get('system', UNKNOWN)}, computes on {machine.get('backend')}"
    rows = [
        ("pair", pair["name"], models),
        ("chip", machine.get("chip", UNKNOWN), on),
        ("this machine's memory", size(machine.get("memory_bytes")), _working_set(machine)),
        ("power", state.get("power") or UNKNOWN, f"before: {_state(state)}; after: {_state(after)}"),
        *(("caution", word, note) for word, note in cautions(machine, after)),
    ]
    if head := data.get("load", {}).get("head"):
        rows.append(("head", head["kind"], (head["agreement"] or {}).get("summary", "")))
    for part in parts:
        if part["name"].startswith("rows at"):
            rows.append((f"target, {part['name'].removeprefix('rows ')} tokens", *_noted(_row_costs, part)))
    for part in parts:
        if part["name"] in LINES:
            name, line = LINES[part["name"]]
            rows.append((name, *_noted(line, part)))
    left = [part["name"] for part in parts if part["status"] in ("left out", "failed")]
    rows.append(("left out", str(len(left)), ", ".join(left)))
    took, budget = report["seconds"], report["budget_seconds"]
    return [*rows, ("time", f"{took:.0f} s", f"of {budget:.0f} s")]


def cautions(machine: Facts, after: Facts) -> list[tuple[str, str]]:
    """What makes the figures worse than this machine can: known before anything was measured."""
    before, found = machine.get("state", {}), []
    load, cores = before.get("load"), machine.get("cores") or 1
    if load is not None and load > BUSY * cores:
        found.append(("busy", f"load {load:g} on {cores} cores before anything ran: times are too long, and vary"))
    if before.get("power") == "battery":
        found.append(("battery", "on battery a machine may be slower"))
    if before.get("low_power_mode"):
        found.append(("low power mode", "it caps the speed of the chip"))
    hot = next((state["thermal"] for state in (before, after) if state.get("thermal") not in (None, "nominal")), None)
    if hot:
        found.append(("hot", f"thermal pressure {hot}: later figures are worse than earlier ones"))
    return found


def _noted(line: Any, part: Facts) -> tuple[str, str]:
    """A part's value and note; why it is not whole comes last."""
    value, said = line(part["data"]) if part["data"] else (UNKNOWN, "")
    return value, "; ".join(filter(None, (said, part["note"])))


def _working_set(machine: Facts) -> str:
    """What the device recommends, and the user's own limit."""
    recommended, limit = machine.get("working_set_bytes"), machine.get("wired_limit_mb")
    said = [f"working set {size(recommended)}"] if recommended else []
    return ", ".join([*said, *([f"wired limit set to {limit} MB"] if limit else [])])


def _state(state: Facts) -> str:
    """Power mode, heat and load."""
    low, load, thermal = (state.get(name) for name in ("low_power_mode", "load", "thermal"))
    mode = state.get("power_mode") or (None if low is None else "low power" if low else "not low power")
    said = [mode, thermal and f"thermal {thermal}", None if load is None else f"load {load:g}"]
    return ", ".join(filter(None, said)) or UNKNOWN


def _row_costs(data: Facts) -> tuple[str, str]:
    """One row of the target, and what several rows and a draft step cost in such passes: v(n) and c."""
    totals = {role: {cost["rows"]: cost["total_seconds"] for cost in data.get(role) or ()} for role in MODELS}
    target, draft = (totals[role] for role in MODELS)
    if not target.get(1):
        return UNKNOWN, ""
    said = [f"c {draft[1] / target[1]:.2f}"] if draft.get(1) else []
    said += [f"v({rows}) {target[rows] / target[1]:.3g}" for rows in (2, 4, 8, 16, 32) if rows in target]
    return f"{_milliseconds(target[1])} a row", ", ".join(said)


def _milliseconds(seconds: float) -> str:
    """0.0123 -> "12.3 ms", 0.123 -> "123 ms"."""
    return f"{1000 * seconds:.{2 if seconds < 0.01 else 1 if seconds < 0.1 else 0}f} ms"


def _memory(data: Facts) -> tuple[str, str]:
    before = data.get("before", {})
    replies = data.get("replies") or [before]
    last, number = replies[-1], "1 reply" if len(replies) == 1 else f"{len(replies)} replies"
    grown = f"{size(before.get('cache_bytes'))} before, {size(last.get('cache_bytes'))} after {number}"
    return size(last.get("active_bytes")), f"in arrays; kept buffers: {grown}; peak {size(last.get('peak_bytes'))}"


def _audit(data: Facts) -> tuple[str, str]:
    findings = data.get("findings", ())
    results = Counter(finding["result"] for finding in findings)
    named = ", ".join(f"{number} {result}" for result, number in results.most_common())
    gaps = [finding["gap"] for finding in findings if finding["gap"] is not None]
    return f"{results['diverged']} diverged", f"{named}; largest gap {max(gaps):.2g}" if gaps else named


def _in_flight(data: Facts) -> tuple[str, str]:
    runs = [data.get(f"{name}_runs") or [] for name in ("limited", "unlimited")]
    if not all(runs):
        return UNKNOWN, ""
    means = [{name: mean(run[f"{name}_ms"] for run in each) for name in ("draft", "verify", "round")} for each in runs]
    words = [f"draft {one['draft']:.1f} + verify {one['verify']:.1f} ms" for one in means]
    return f"{means[0]['round']:.1f} ms a round", f"as it is: {words[0]}; never stopped: {words[1]}"


def _bench(data: Facts) -> tuple[str, str]:
    rows = [row for row in data.get("rows", ()) if row["speedup"] is not None]
    best = max(rows, key=lambda row: row["speedup"], default=None)
    conclusion = str(data.get("conclusion", ""))
    if best is None:
        return UNKNOWN, conclusion
    return f"best K {best['k']}, {_speedup(best)}", conclusion


def _speedup(row: Facts) -> str:
    """A ratio to plain decoding in words; a single prompt gives an interval without ends, so no figure."""
    if not row["k"]:
        return "plain decoding"
    low, high = row["speedup_low"], row["speedup_high"]
    return "cannot tell yet" if high > UNBOUNDED else ratio_words(row["speedup"], low, high)


def _selftest(data: Facts) -> tuple[str, str]:
    outcomes = data.get("outcomes", ())
    tiers = [[one for one in outcomes if one["proves"].startswith("kernels") is real] for real in (True, False)]
    wrong = [one["name"] for one in outcomes if one["status"] not in ("pass", "refused")]
    note = f"passed: kernels real models use {_passed(tiers[0])}, rollback logic in float32 {_passed(tiers[1])}"
    return f"{len(wrong)} wrong", "; ".join([note, *([f"wrong: {', '.join(wrong)}"] if wrong else [])])


def _passed(outcomes: Sequence[Facts]) -> str:
    return f"{sum(outcome['status'] == 'pass' for outcome in outcomes)} of {len(outcomes)}"


MODELS = ("target", "draft")
LINES = {
    "memory": ("memory in use", _memory),
    "audit": ("audit", _audit),
    "in flight": ("work in flight", _in_flight),
    "bench": ("bench", _bench),
    "self-test": ("self-test", _selftest),
}
