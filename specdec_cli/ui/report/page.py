"""A report as one readable page (pure). Law: one file, no network, no library; every figure is defined."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.audit.report.result import Report
from specdec_cli.ui.html import Markup, element, fill, joined, style_sheet
from specdec_cli.ui.report.figures import NOTHING_PRIVATE, summary, title
from specdec_cli.ui.report.sections import sections

TERMS = (
    (
        "pass, rows",
        "One run of a model over that many tokens at once. Plain decoding reads one row; verifying K draft tokens "
        "reads K + 1.",
    ),
    ("v(n), c", "A target pass over n rows, and a draft step, both in target passes of one row."),
    (
        "building, queueing, waiting",
        "Time to build mlx's lazy graph on the host; to hand it to the device, which stops the host while much work is "
        "in flight; and to wait for the rest. Medians.",
    ),
    (
        "in flight",
        "The same prompt with mlx as it is, and with command buffers that are never full, so that the host is never "
        "stopped. If the draft's time falls and the round's does not, verification was billed to the draft.",
    ),
    (
        "gap",
        "The lead of plain decoding's token over the other one where two answers part, in logits. Up to the limit it "
        "counts as a near-tie, which rounding can flip.",
    ),
    (
        "kernels real models use",
        "Tiny random models in the precision and with the head sizes of released ones: after rollbacks every row is "
        "compared with one-row decoding. It shows the kernels and the caches, not a pair's own weights.",
    ),
    (
        "rollback logic, float32",
        "A tiny model of every architecture: tokens equal plain decoding. It shows the logic, not the kernels of 16 or "
        "4 bits.",
    ),
    (
        "arrays, kept buffers, wired",
        "Memory that mlx uses; memory it has freed and keeps for later; and memory of the whole machine that cannot be "
        "paged out.",
    ),
)


def html_page(report: Report) -> str:
    """The whole page."""
    machine = report.data("machine")
    versions = ", ".join(f"{name} {number}" for name, number in machine.get("versions", {}).items())
    values = {
        "title": title(report),
        "subtitle": f"{report.date}; {machine.get('system', '')}; {versions}",
        "plot_style": style_sheet("plot"),
        "figures": _figures(report),
        "sections": joined([*sections(report), _machine(report)], "\n"),
        "terms": _terms(TERMS),
        "private": NOTHING_PRIVATE,
    }
    return fill("report", values)


def _figures(report: Report) -> Markup:
    """The summary as cards."""
    cards = [
        element("div", element("dt", name), element("dd", value, element("small", note)))
        for name, value, note in summary(report)
    ]
    return element("dl", *cards, class_="figures")


def _machine(report: Report) -> Markup:
    """Everything that the machine said of itself."""
    facts: list[tuple[str, str]] = []
    for name, value in report.data("machine").items():
        if name not in ("versions", "state"):
            pairs = value.items() if isinstance(value, dict) else [("", value)]
            facts += [(f"{name} {key}".replace("_", " ").strip(), _said(item)) for key, item in pairs]
    for moment, state in (("before", report.data("machine").get("state", {})), ("after", report.data("machine after"))):
        facts += [(f"{key} {moment}".replace("_", " "), _said(item)) for key, item in state.items()]
    return element("section", element("h2", "The machine"), element("dl", _terms(facts), class_="facts"))


def _said(value: object) -> str:
    return "not said" if value is None else str(value)


def _terms(pairs: Sequence[tuple[str, str]]) -> Markup:
    return joined([joined([element("dt", name), element("dd", text)]) for name, text in pairs], "\n")
