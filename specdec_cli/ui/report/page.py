"""A report as one readable page (pure). Law: one file, no network, no library; every figure is defined."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.audit.report.result import Report
from specdec_cli.format import size
from specdec_cli.ui.html import Markup, element, fill, joined, style_sheet
from specdec_cli.ui.report.figures import NOTHING_PRIVATE, cautions, summary, title
from specdec_cli.ui.report.sections import row, sections, table

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
        "cautions": joined([_caution(*caution) for caution in cautions(report)]),
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
        if name != "caution"
    ]
    return element("dl", *cards, class_="figures")


def _caution(word: str, note: str) -> Markup:
    return element("p", element("strong", f"{word[:1].upper()}{word[1:]}: "), f"{note}.", class_="caution", role="note")


def _machine(report: Report) -> Markup:
    """Everything that the machine said of itself, and its state before and after."""
    machine, facts = report.data("machine"), []
    for name, value in machine.items():
        if name not in ("versions", "state"):
            pairs = value.items() if isinstance(value, dict) else [("", value)]
            facts += [
                _fact(key if name in key else f"{name} {key}".strip(), item) for key, item in pairs if item is not None
            ]
    before, after = machine.get("state", {}), report.data("machine after")
    rows = []
    for key, value in before.items():
        name, said = _fact(key, value)
        rows.append(row(name, said, _fact(key, after.get(key))[1]))
    states = table(("state", "before", "after"), rows, "The machine before and after")
    return element("section", element("h2", "The machine"), element("dl", _terms(facts), class_="facts"), states)


def _fact(name: str, value: object) -> tuple[str, str]:
    """A name without underscores, and the value in words; bytes as sizes."""
    words = name.removesuffix("_bytes").replace("_", " ")
    if value is None:
        return words, "not said"
    if isinstance(value, bool):
        return words, "on" if value else "off"
    return words, size(value) if name.endswith("_bytes") and isinstance(value, int) else str(value)


def _terms(pairs: Sequence[tuple[str, str]]) -> Markup:
    return joined([joined([element("dt", name), element("dd", text)]) for name, text in pairs], "\n")
