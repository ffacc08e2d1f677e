"""The page's sections, one for each kind of measurement (pure). Law: a part without data is named with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec_cli.audit.report.result import Part, Report
from specdec_cli.format import UNKNOWN, percent, size
from specdec_cli.ui.html import Markup, element, joined
from specdec_cli.ui.report import plot
from specdec_cli.ui.report.figures import mean_of, milliseconds, passed, ratio, results, speedup, tiers

Facts = Mapping[str, Any]
LOOKS = {"pass": "good", "identical": "good", "done": "good", "wrong": "bad", "diverged": "bad", "failed": "bad"}
KEY = (("build", "building the graph"), ("queue", "queueing it"), ("wait", "waiting for the rest"))
MEMORY = (("active_bytes", "arrays"), ("cache_bytes", "kept buffers"), ("peak_bytes", "peak"), ("wired_bytes", "wired"))


def sections(report: Report) -> list[Markup]:
    """All sections in the order of the report."""
    rows = [part for part in report.parts if part.name.startswith("rows at")]
    named = {part.name: part for part in report.parts}
    found = [_rows(part) for part in rows]
    for name, make in MAKERS:
        if name in named:
            found.append(make(named[name], report.data("machine")))
    if load := named.get("load"):
        found.insert(0, _head(load))
    memory = [named[name] for name in ("load", "memory", "memory given back") if name in named]
    found.append(_memory(memory))
    return [*found, _parts(report.parts)]


def table(head: Sequence[str], rows: Sequence[Sequence[Markup]], name: str, words: Sequence[int] = ()) -> Markup:
    """A table that scrolls sideways; the columns in `words` are text."""
    looks = [{"class_": "words"} if place in words else {} for place in range(len(head))]
    heads = element("tr", *(element("th", word, scope="col", **looks[place]) for place, word in enumerate(head)))
    body = element("tbody", *(element("tr", *row) for row in rows))
    return element("div", element("table", element("thead", heads), body), class_="wide", role="region", tabindex="0",
                   aria_label=name)  # fmt: skip


def row(name: str, *cells: str | Markup) -> list[Markup]:
    """A table's row: its name, then its cells; one that is a cell already is taken as it is."""
    made = [cell if isinstance(cell, Markup) else element("td", cell) for cell in cells]
    return [element("th", name, scope="row"), *made]


def _status(status: str) -> Markup:
    return element("td", status, class_=f"words {LOOKS.get(status, 'open')}")


def _words(text: str) -> Markup:
    return element("td", text, class_="words")


def _section(heading: str, part: Part, *inside: Markup) -> Markup:
    """The part under its heading; why it is not whole comes first."""
    note = [element("p", f"{part.status}: {part.note}", class_="soft")] if part.note else []
    return element("section", element("h2", heading), *note, *(inside if part.data else ()))


def _rows(part: Part) -> Markup:
    """Plots and a table of row costs at one length of context."""
    lines = [(role, role, part.data[role]) for role in ("target", "draft") if part.data.get(role)]
    heading = f"A pass by its rows, after {part.name.removeprefix('rows at ')} tokens"
    if not lines:
        return _section(heading, part)
    plots = [plot.passes("Whole pass", lines)]
    plots += [plot.shares(f"What a pass of the {role} consists of", costs) for role, _, costs in lines]
    key = [joined([element("span", class_=look), Markup(words)]) for look, words in KEY]
    tables = [_costs(role, costs) for role, _, costs in lines]
    figures = element("div", *(element("figure", one) for one in plots), class_="plots")
    return _section(heading, part, figures, element("p", *key, class_="soft key"), *tables)


def _costs(role: str, costs: Sequence[Mapping[str, Any]]) -> Markup:
    head = (f"rows, {role}", "pass", "in passes of one row", "building", "queueing", "waiting", "queueing, share")
    rows = []
    for cost in costs:
        parts = [milliseconds(plot.seconds_of(cost, name)) for name, _ in plot.PARTS]
        times = ratio(costs, cost["rows"])
        queued = percent(cost["queue_seconds"] / cost["total_seconds"])
        share = UNKNOWN if times is None else f"{times:.2f}"
        rows.append(row(str(cost["rows"]), milliseconds(cost["total_seconds"]), share, *parts, queued))
    return table(head, rows, f"Row costs of the {role}")


def _head(part: Part) -> Markup:
    """How often the head's guesses were the target's own tokens; nothing where no head drafts."""
    agreement = (part.data.get("head") or {}).get("agreement")
    if not agreement:
        return joined([])
    said = f"It {agreement['summary']}, and chance {percent(agreement['chance'])}."
    return element("section", element("h2", "Does the head guess right?"), element("p", said))


def _in_flight(part: Part, machine: Facts) -> Markup:
    rows = []
    for name, label in (("limited_runs", "as it is"), ("unlimited_runs", "the host never stopped")):
        for place, run in enumerate(part.data.get(name, ()), 1):
            figures = [f"{run[figure]:.2f} ms" for figure in ("draft_ms", "verify_ms", "round_ms")]
            rows.append(row(f"{label}, run {place}", str(run["rounds"]), *figures))
    said = element("p", _effect(part.data, str(machine.get("backend"))))
    head = (f"K {part.data.get('k')}", "rounds", "draft", "verify", "round")
    return _section("Does the limit of work in flight move time?", part, said, table(head, rows, "Work in flight"))


def _effect(data: Mapping[str, Any], backend: str) -> str:
    """What the limit does to the draft's time; nothing where runs of one setting differ by as much."""
    limited, unlimited = (data.get(name) or [] for name in ("limited_runs", "unlimited_runs"))
    if backend == "cpu":
        return (
            "A GPU has command buffers, and this is a CPU: both settings are the same here, and what differs is noise."
        )
    if not limited or not unlimited:
        return "There are no two runs to compare."
    change = mean_of(unlimited, "draft_ms") / mean_of(limited, "draft_ms") - 1
    times = [[run["draft_ms"] for run in runs] for runs in (limited, unlimited)]
    spread = max(max(one) / min(one) - 1 for one in times)
    fewest = min(map(len, times))
    words = f"The draft's time with the host never stopped: {percent(change, sign='+')}"
    if fewest == 1:
        return f"{words}, from one run: another may differ by as much."
    if abs(change) <= spread:
        return f"{words}; runs of one setting differ by as much: no effect can be told."
    return f"{words}."


def _audit(part: Part, machine: Facts) -> Markup:
    counts = ", ".join(f"{number} {result}" for result, number in results(part.data).most_common())
    findings = part.data.get("findings", ())
    ks = list(dict.fromkeys(found["k"] for found in findings))
    answers = {(found["prompt"], found["k"]): found for found in findings}
    rows = []
    for prompt in dict.fromkeys(found["prompt"] for found in findings):
        rows.append(row(prompt, *(_answer(answers.get((prompt, k))) for k in ks)))
    head = ("prompt", *(f"K {k}" for k in ks))
    said = element("p", f"{counts}. A near-tie is {part.data.get('near_tie')}.")
    return _section("Is it lossless here?", part, said, table(head, rows, "Audit", range(1, len(head))))


def _answer(found: Mapping[str, Any] | None) -> Markup:
    """The result of one answer, and where it differs the place and the gap."""
    if found is None:
        return element("td", UNKNOWN, class_="words")
    result = found["result"]
    place = "" if found["position"] is None else f" at token {found['position'] + 1}"
    gap = "" if found["gap"] is None else f", gap {found['gap']:.2g} of {found['limit']:.2g}"
    return element("td", f"{result}{place}{gap}", class_=f"words {LOOKS.get(result, 'open')}")


def _bench(part: Part, machine: Facts) -> Markup:
    rows = []
    for found in part.data.get("rows", ()):
        speed, steps = found["tokens_per_second"], found["verify_steps"]
        figures = [
            UNKNOWN if speed is None else f"{speed:.1f}",
            speedup(found),
            "measured" if found["measured"] else "predicted",
            percent(found["acceptance_rate"]),
            UNKNOWN if steps is None else f"{steps:.2f}",
        ]
        rows.append(row(str(found["k"]), *figures))
    head = ("K", "tok/s", "speed-up", "", "accepted", "v(K+1)")
    conclusion = str(part.data.get("conclusion", ""))
    said = element("p", f"{conclusion[:1].upper()}{conclusion[1:]}.")
    return _section("A short bench", part, said, table(head, rows, "Bench"))


def _selftest(part: Part, machine: Facts) -> Markup:
    kernels, logic = tiers(part.data)
    said = element(
        "p", f"Kernels real models use: {passed(kernels)} passed. Rollback logic, float32: {passed(logic)} passed."
    )
    shown = [*kernels, *(outcome for outcome in logic if outcome["status"] != "pass")]
    rows = []
    for outcome in shown:
        proof = f"{outcome['proves']}; " if outcome["status"] == "pass" else ""
        rows.append(row(outcome["name"], _status(outcome["status"]), _words(f"{proof}{outcome['detail']}")))
    return _section("Self-test", part, said, table(("what", "result", "what it shows"), rows, "Self-test", (1, 2)))


def _memory(parts: Sequence[Part]) -> Markup:
    """Every point in time at which memory was read, one below the other."""
    data = {part.name: part.data for part in parts}
    moments = [("before loading", data.get("load", {}).get("memory_before"))]
    moments.append(("loaded", data.get("load", {}).get("memory_after")))
    moments.append(("before the replies", data.get("memory", {}).get("before")))
    replies = data.get("memory", {}).get("replies", ())
    moments += [(f"after reply {place}, {reply['tokens']} tokens", reply) for place, reply in enumerate(replies, 1)]
    moments.append(("models dropped", data.get("memory given back")))
    rows = [row(name, *(size(use.get(key)) for key, _ in MEMORY)) for name, use in moments if use]
    head = ("moment", *(label for _, label in MEMORY))
    notes = [element("p", f"{part.name}: {part.note}", class_="soft") for part in parts if part.note]
    return element("section", element("h2", "Memory"), *notes, table(head, rows, "Memory"))


def _parts(parts: Sequence[Part]) -> Markup:
    rows = [row(part.name, _status(part.status), f"{part.seconds:.1f} s", _words(part.note)) for part in parts]
    return element("section", element("h2", "What was done, and how long it took"),
                   table(("part", "result", "time", "why"), rows, "Parts", (1, 3)))  # fmt: skip


MAKERS = (("in flight", _in_flight), ("audit", _audit), ("bench", _bench), ("self-test", _selftest))
