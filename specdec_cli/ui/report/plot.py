"""The plots of a report (pure). Law: marks differ in shape, and every plot states its numbers as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec_cli.ui.bench.plot import Axes, plot, text
from specdec_cli.ui.html import Markup, element

Costs = Sequence[Mapping[str, Any]]
PARTS = (("build_seconds", "bar build"), ("queue_seconds", "bar queue"), ("wait_seconds", "bar wait"))


def passes(heading: str, lines: Sequence[tuple[str, str, Costs]]) -> Markup:
    """Milliseconds of a pass by its rows, a line for each (name, class, costs)."""
    labels = max(([str(cost["rows"]) for cost in costs] for _, _, costs in lines), key=len)
    top = max(1000 * cost["total_seconds"] for _, _, costs in lines for cost in costs)
    axes = Axes(tuple(labels), 0.0, 1.08 * top, "rows of a pass", "ms")
    parts, said = axes.draw(), []
    for place, (name, look, costs) in enumerate(lines):
        points = [(axes.x(slot), axes.y(1000 * cost["total_seconds"])) for slot, cost in enumerate(costs)]
        parts.append(element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=f"line {look}"))
        parts += [_mark(place, x, y, look) for x, y in points]
        parts += [_mark(place, 56, 51 + 16 * place, look), text(name, 66, 55 + 16 * place, "tick", "start")]
        values = ", ".join(f"{cost['rows']} rows {1000 * cost['total_seconds']:.2f} ms" for cost in costs)
        said.append(f"{name}: {values}")
    return plot(heading, parts, f"{'. '.join(said)}.")


def shares(heading: str, costs: Costs) -> Markup:
    """What a pass consists of: bars of building the graph, queueing it, and waiting for the rest."""
    axes = Axes(tuple(str(cost["rows"]) for cost in costs), 0.0, 100.0, "rows of a pass", "of the pass", " %")
    parts = axes.draw()
    width = 0.66 * (axes.x(1) - axes.x(0)) if len(costs) > 1 else 60.0
    for slot, cost in enumerate(costs):
        low = 0.0
        for name, look in PARTS:
            high = low + 100 * seconds_of(cost, name) / cost["total_seconds"]
            shape = {"y": f"{axes.y(high):.1f}", "height": f"{axes.y(low) - axes.y(high):.1f}"}
            parts.append(
                element("rect", x=f"{axes.x(slot) - width / 2:.1f}", width=f"{width:.1f}", class_=look, **shape)
            )
            low = high
    values = ", ".join(
        f"{cost['rows']} rows {100 * cost['queue_seconds'] / cost['total_seconds']:.0f} %" for cost in costs
    )
    return plot(heading, parts, f"Share of queueing: {values}.")


def seconds_of(cost: Mapping[str, Any], name: str) -> float:
    """A part of the pass; the wait is what is left of it."""
    if name == "wait_seconds":
        return max(float(cost["total_seconds"] - cost["build_seconds"] - cost["queue_seconds"]), 0.0)
    return float(cost[name])


def _mark(place: int, x: float, y: float, look: str) -> Markup:
    """Circles for the first line, squares for the second."""
    if place:
        return element("rect", x=f"{x - 3:.1f}", y=f"{y - 3:.1f}", width="6", height="6", class_=f"mark {look}")
    return element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3.5", class_=f"mark {look}")
