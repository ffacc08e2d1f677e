"""A report's figures in words (pure). Law: what was not measured says so, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from specdec_cli.audit.report.result import Part, Report
from specdec_cli.format import UNKNOWN, size
from specdec_cli.gain import ratio_words

Row = tuple[str, str, str]
# Load a core, before anything runs, from which on other programs are felt.
BUSY = 0.5
# A ratio's interval that reaches further has no end.
UNBOUNDED = 100.0
NOTHING_PRIVATE = (
    "It holds no prompt and no answer, and neither your name, this machine's name nor a path of your home."
)


def milliseconds(seconds: float | None) -> str:
    """0.0123 -> "12.3 ms", 0.123 -> "123 ms"."""
    if seconds is None:
        return UNKNOWN
    return f"{1000 * seconds:.{2 if seconds < 0.01 else 1 if seconds < 0.1 else 0}f} ms"


def title(report: Report) -> str:
    return f"{report.pair['name']} on {report.data('machine').get('chip', 'this machine')}"


def summary(report: Report) -> list[Row]:
    """(what, value, note): the report on one screen."""
    machine = report.data("machine")
    state = machine.get("state", {})
    rows = [
        ("pair", report.pair["name"], _models(report.pair)),
        (
            "chip",
            machine.get("chip", UNKNOWN),
            f"{machine.get('system', UNKNOWN)}, computes on {machine.get('backend')}",
        ),
        ("this machine's memory", size(machine.get("memory_bytes")), working_set(machine)),
        ("power", state.get("power") or UNKNOWN, _state_note(state, report.data("machine after"))),
    ]
    rows += [("caution", word, note) for word, note in cautions(report)]
    if head := report.data("load").get("head"):
        rows.append(("head", head["kind"], (head["agreement"] or {}).get("summary", "")))
    rows += [_rows_line(part) for part in report.parts if part.name.startswith("rows at")]
    for part in report.parts:
        if part.name in LINES:
            said = LINES[part.name](part) if part.data else (UNKNOWN, "")
            rows.append((NAMES.get(part.name, part.name), said[0], "; ".join(filter(None, (said[1], part.note)))))
    left = [part.name for part in report.parts if part.status in ("left out", "failed")]
    rows.append(("left out", str(len(left)), ", ".join(left)))
    rows.append(("time", f"{report.seconds:.0f} s", f"of {report.budget_seconds:.0f} s"))
    return rows


def _models(pair: Mapping[str, Any]) -> str:
    return f"{pair['target']} with {pair['draft']}" if pair["draft"] else str(pair["target"])


def working_set(machine: Mapping[str, Any]) -> str:
    """What the device recommends, and the user's own limit."""
    recommended, limit = machine.get("working_set_bytes"), machine.get("wired_limit_mb")
    said = [f"working set {size(recommended)}"] if recommended else []
    return ", ".join([*said, *([f"wired limit set to {limit} MB"] if limit else [])])


def _state_note(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return f"before: {state_words(before)}; after: {state_words(after)}"


def cautions(report: Report) -> list[tuple[str, str]]:
    """What makes the figures worse than this machine can: known before anything was measured."""
    machine = report.data("machine")
    before, after, found = machine.get("state", {}), report.data("machine after"), []
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


def state_words(state: Mapping[str, Any]) -> str:
    """Power mode, heat and load."""
    low, load = state.get("low_power_mode"), state.get("load")
    mode = None if low is None else "low power" if low else "not low power"
    said = [
        state.get("power_mode") or mode,
        state.get("thermal") and f"thermal {state['thermal']}",
        None if load is None else f"load {load:g}",
    ]
    return ", ".join(filter(None, said)) or UNKNOWN


def ratio(costs: Sequence[Mapping[str, Any]], rows: int) -> float | None:
    """v(rows): a pass over `rows` rows in passes over one."""
    totals = {cost["rows"]: cost["total_seconds"] for cost in costs}
    return totals[rows] / totals[1] if rows in totals and totals.get(1) else None


def draft_share(data: Mapping[str, Any]) -> float | None:
    """c: a draft step in plain steps."""
    first = [costs[0]["total_seconds"] for role in ("target", "draft") if (costs := data.get(role))]
    return first[1] / first[0] if len(first) == 2 and first[0] else None


def _rows_line(part: Part) -> Row:
    """One row of the target, and what several rows and a draft step cost beside it."""
    costs = part.data.get("target") or []
    if not costs:
        return pass_name(part), UNKNOWN, part.note or "not measured"
    said = [f"v({rows}) {found:.3g}" for rows in (2, 4, 8, 16, 32) if (found := ratio(costs, rows)) is not None]
    if (share := draft_share(part.data)) is not None:
        said.insert(0, f"c {share:.2f}")
    return (
        pass_name(part),
        f"{milliseconds(costs[0]['total_seconds'])} a row",
        "; ".join([", ".join(said), *_note(part)]),
    )


def pass_name(part: Part) -> str:
    """`rows at 512` as a reader calls it."""
    return f"target, at {part.name.removeprefix('rows at ')} tokens"


def _note(part: Part) -> list[str]:
    return [part.note] if part.note else []


def _memory(part: Part) -> tuple[str, str]:
    replies = part.data.get("replies") or [part.data.get("before", {})]
    last, before = replies[-1], part.data.get("before", {})
    number = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
    grown = f"{size(before.get('cache_bytes'))} before, {size(last.get('cache_bytes'))} after {number}"
    return size(last.get("active_bytes")), f"in arrays; kept buffers: {grown}; peak {size(last.get('peak_bytes'))}"


def results(data: Mapping[str, Any]) -> Counter[str]:
    """How many answers of the audit had each result."""
    return Counter(finding["result"] for finding in data.get("findings", ()))


def _audit(part: Part) -> tuple[str, str]:
    found = results(part.data)
    named = ", ".join(f"{number} {result}" for result, number in found.most_common())
    gaps = [finding["gap"] for finding in part.data.get("findings", ()) if finding["gap"] is not None]
    return f"{found['diverged']} diverged", f"{named}; largest gap {max(gaps):.2g}" if gaps else named


def mean_of(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    return mean(float(run[name]) for run in runs)


def _in_flight(part: Part) -> tuple[str, str]:
    runs = [part.data.get(f"{name}_runs") or [] for name in ("limited", "unlimited")]
    if not all(runs):
        return UNKNOWN, ""
    words = [f"draft {mean_of(run, 'draft_ms'):.1f} + verify {mean_of(run, 'verify_ms'):.1f} ms" for run in runs]
    return f"{mean_of(runs[0], 'round_ms'):.1f} ms a round", f"as it is: {words[0]}; never stopped: {words[1]}"


def _bench(part: Part) -> tuple[str, str]:
    rows = [row for row in part.data.get("rows", ()) if row["speedup"] is not None]
    best = max(rows, key=lambda row: row["speedup"], default=None)
    value = UNKNOWN if best is None else f"best K {best['k']}, {speedup(best)}{' predicted' * (not best['measured'])}"
    return value, str(part.data.get("conclusion", ""))


def speedup(row: Mapping[str, Any]) -> str:
    """A bench row's ratio to plain decoding in words; a single prompt gives an interval without ends, so no figure."""
    if row["speedup"] is None or not row["k"]:
        return UNKNOWN if row["k"] else "plain decoding"
    low, high = row["speedup_low"], row["speedup_high"]
    return "cannot tell yet" if high > UNBOUNDED else ratio_words(row["speedup"], low, high)


def passed(outcomes: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(outcome['status'] == 'pass' for outcome in outcomes)} of {len(outcomes)}"


def tiers(data: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The self-test's outcomes in real precisions, and those of the logic in float32."""
    outcomes = data.get("outcomes", ())
    return [o for o in outcomes if o["proves"].startswith("kernels")], [
        o for o in outcomes if not o["proves"].startswith("kernels")
    ]


def _selftest(part: Part) -> tuple[str, str]:
    kernels, logic = tiers(part.data)
    wrong = [outcome["name"] for outcome in (*kernels, *logic) if outcome["status"] not in ("pass", "refused")]
    note = f"passed: kernels real models use {passed(kernels)}, rollback logic in float32 {passed(logic)}"
    return f"{len(wrong)} wrong", "; ".join([note, *([f"wrong: {', '.join(wrong)}"] if wrong else [])])


NAMES = {"memory": "memory in use", "in flight": "work in flight"}
LINES = {"memory": _memory, "audit": _audit, "in flight": _in_flight, "bench": _bench, "self-test": _selftest}
