"""Plots as SVG (pure). Marks differ in shape, not only in colour; each plot also states its numbers as text.

All plots have one size, which is readable on a telephone; a page puts them side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Final

from specdec_cli.bench.report import Source
from specdec_cli.ui.html import Markup, element

WIDTH: Final = 360
HEIGHT: Final = 240
KEY: Final = "● measured, × too few prompts, with 95 % intervals; ringed: recommended; dashed: plain decoding"
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 14, 44, 42


@dataclass(frozen=True, slots=True)
class Mark:
    """A value with its interval and what it rests on; infinite bounds mean no interval."""

    value: float
    low: float
    high: float
    source: Source = "measured"
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """Slots on x, a linear scale on y."""

    labels: tuple[str, ...]
    low: float
    high: float
    x_title: str
    y_title: str
    unit: str = ""

    def x(self, slot: float) -> float:
        """The middle of a slot."""
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (slot + 0.5) / len(self.labels)

    def y(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (inside - self.low) / (self.high - self.low)

    def draw(self) -> list[Markup]:
        """Grid, ticks and titles."""
        parts = []
        for tick in ticks(self.low, self.high):
            parts.append(_line(_LEFT, self.y(tick), WIDTH - _RIGHT, self.y(tick), "grid"))
            parts.append(text(f"{tick:g}{self.unit}", _LEFT - 6, self.y(tick) + 4, "tick", "end"))
        every = ceil(len(self.labels) / 17)
        for slot, label in enumerate(self.labels):
            if slot % every == 0:
                parts.append(text(label, self.x(slot), HEIGHT - _BOTTOM + 16, "tick"))
        parts.append(text(self.x_title, (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, "axis"))
        parts.append(text(self.y_title, 8, 31, "axis", "start"))
        return parts


def speedups(heading: str, labels: Sequence[str], marks: Sequence[Mark | None]) -> Markup:
    """Speed-up by K against plain decoding: dots with whiskers, a cross where prompts are too few; one is ringed."""
    known = [mark for mark in marks if mark is not None]
    values = [mark.value for mark in known]
    ends = [end for mark in known for end in (mark.low, mark.high) if isfinite(end)]
    # A wide interval of few prompts must not compress the rest: it runs out of the plot.
    near = [end for end in ends if 0.7 * min(values) <= end <= 1.5 * max(values)]
    low, high = min([0.9, *values, *near]), max([1.1, *values, *near])
    axes = Axes(tuple(labels), low - 0.05, high + 0.05, "K, draft tokens a round", "× plain decoding")
    parts = [*axes.draw(), _line(_LEFT, axes.y(1.0), WIDTH - _RIGHT, axes.y(1.0), "one")]
    for slot, mark in enumerate(marks):
        if mark is not None:
            parts += _mark(axes, slot, mark)
    speeds = (f"K {label}: {mark.value:.2f}" for label, mark in zip(labels, marks, strict=True) if mark is not None)
    return plot(heading, parts, f"Speed-up by K. {', '.join(speeds)}.")


def acceptance(heading: str, rates: Sequence[float]) -> Markup:
    """How often the draft token at each position was accepted: bars with their percentage."""
    axes = Axes(tuple(str(j) for j in range(1, len(rates) + 1)), 0.0, 100.0, "position in the draft", "accepted", " %")
    parts = axes.draw()
    width = 0.66 * (axes.x(1) - axes.x(0)) if len(rates) > 1 else 60.0
    for slot, rate in enumerate(rates):
        top = axes.y(100 * rate)
        size = {"width": f"{width:.1f}", "height": f"{HEIGHT - _BOTTOM - top:.1f}", "rx": "2"}
        parts.append(element("rect", class_="bar", x=f"{axes.x(slot) - width / 2:.1f}", y=f"{top:.1f}", **size))
        if len(rates) <= 10:
            parts.append(text(f"{100 * rate:.0f}", axes.x(slot), top - 4, "label"))
    values = ", ".join(f"position {j}: {100 * rate:.0f} %" for j, rate in enumerate(rates, 1))
    return plot(heading, parts, f"Acceptance by position. {values}.")


def costs(heading: str, verify: Sequence[float], draft_step: float) -> Markup:
    """v(n), the target's pass over n rows, and the whole round of n - 1 drafted tokens, in plain steps."""
    whole = [rows + place * draft_step for place, rows in enumerate(verify)]
    labels = tuple(str(n) for n in range(1, len(verify) + 1))
    axes = Axes(labels, 0.0, 1.08 * max(whole), "n, rows checked in one pass (K + 1)", "plain steps")
    parts = [*axes.draw(), _path(axes, whole, "whole"), _path(axes, verify, "line")]
    for slot, (rows, both) in enumerate(zip(verify, whole, strict=True)):
        square = {"x": f"{axes.x(slot) - 3:.1f}", "y": f"{axes.y(both) - 3:.1f}", "width": "6", "height": "6"}
        parts += [element("rect", class_="square", **square), _circle(axes.x(slot), axes.y(rows), 3.5, "dot")]
    parts.append(element("rect", class_="square", x=str(_LEFT + 6), y=str(_TOP + 2), width="6", height="6"))
    parts.append(text("whole round: K·c + v(n)", _LEFT + 18, _TOP + 9, "tick", "start"))
    parts.append(_circle(_LEFT + 9, _TOP + 21, 3.5, "dot"))
    parts.append(text("target pass: v(n)", _LEFT + 18, _TOP + 25, "tick", "start"))
    values = ", ".join(f"v({n}) = {rows:.2f}" for n, rows in enumerate(verify, 1))
    return plot(heading, parts, f"Costs in plain steps, c = {draft_step:.2f}. {values}.")


def plot(heading: str, parts: Iterable[Markup], description: str) -> Markup:
    """The SVG element, labelled with its numbers as text for screen readers."""
    title = text(heading, 8, 15, "heading", "start")
    shape = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria_label": f"{heading}. {description}"}
    return element("svg", title, *parts, class_="plot", **shape)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`."""
    rough = (high - low) / about
    power = 10.0 ** floor(log10(rough))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)
    first = ceil(low / step - 1e-9)
    return [round(step * place, 10) for place in range(first, floor(high / step + 1e-9) + 1)]


def text(words: str, x: float, y: float, class_: str, anchor: str = "middle") -> Markup:
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", class_=class_, text_anchor=anchor)


def _mark(axes: Axes, slot: int, mark: Mark) -> list[Markup]:
    x, y = axes.x(slot), axes.y(mark.value)
    top = y
    parts = []
    if isfinite(mark.low) and isfinite(mark.high):
        low, top = axes.y(mark.low), axes.y(mark.high)
        caps = [f"M{x:.1f} {low:.1f}V{top:.1f}"]
        ends = ((mark.low, low), (mark.high, top))
        caps += [f"M{x - 4:.1f} {y_end:.1f}h8" for end, y_end in ends if axes.low <= end <= axes.high]
        parts.append(element("path", d="".join(caps), class_="whisker"))
    if mark.source == "too few":
        parts.append(element("path", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8", class_="few"))
    else:
        parts.append(_circle(x, y, 4.5, "measured"))
    if mark.chosen:
        parts += [_circle(x, y, 9, "chosen"), text(f"{mark.value:.2f}×", x, min(y, top) - 13, "label")]
    return parts


def _path(axes: Axes, values: Sequence[float], class_: str) -> Markup:
    points = [f"{axes.x(slot):.1f},{axes.y(value):.1f}" for slot, value in enumerate(values)]
    return element("polyline", points=" ".join(points), class_=class_)


def _line(x: float, y: float, to_x: float, to_y: float, class_: str) -> Markup:
    return element("line", x1=f"{x:.1f}", y1=f"{y:.1f}", x2=f"{to_x:.1f}", y2=f"{to_y:.1f}", class_=class_)


def _circle(x: float, y: float, r: float, class_: str) -> Markup:
    return element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{r:g}", class_=class_)
