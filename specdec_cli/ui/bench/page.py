"""The bench as one page, and its summary as a picture. Law: one file, no network, no library; every number is defined.

Two sliders predict the speed-up of another draft from this machine's costs. Their arithmetic is in `pages/bench.html`
and, for the tests to compare, in `page_data`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specdec_cli.bench.result import BenchResult
from specdec_cli.ui.bench import plot
from specdec_cli.ui.bench.page_data import Section, sections
from specdec_cli.ui.bench.page_sentences import HEADINGS, TERMS, cells, facts, subtitle, title, warnings
from specdec_cli.ui.html import Markup, element, fill, joined, part, picture_style, style_sheet


def html_page(result: BenchResult) -> str:
    """The whole page."""
    found = sections(result)
    plain = [element("p", warning, class_="advice open", role="note") for warning in warnings(result)]
    values = {
        "title": title(result),
        "subtitle": subtitle(result),
        "plot_style": style_sheet("plot"),
        "warnings": joined(plain),
        "sections": joined(list(map(_section, found)), "\n"),
        "explorer": _explorer(found),
        "facts": _terms(facts(result)),
        "terms": _terms(TERMS),
        "data": Markup(json.dumps(_data(found)).replace("<", "\\u003c")),
    }
    return fill("bench", values)


def svg_summary(result: BenchResult) -> str:
    """Speed-up by K of every contender and temperature, one below the other."""
    found = sections(result)
    plots = [plot.speedups(one.name, one.labels, one.marks) for one in found]
    description = " ".join([f"specdec bench, {title(result)}.", *(f"{one.name}: {one.conclusion}." for one in found)])
    return plot.picture(title(result), plots, description, picture_style("plot"))


def _section(section: Section) -> Markup:
    """The recommendation, the plots, a row for each K and a plot for each kind."""
    answer = section.recommendation.answer
    looks = {"use": "advice", "don't": "advice no"}.get(answer, "advice open")
    said = f"Recommended: {section.conclusion}" if answer == "use" else _sentence(section.conclusion)
    reasons = [element("p", _sentence(reason), class_="soft") for reason in section.reasons]
    advice = [element("strong", said), *reasons]
    advice.append(element("pre", element("code", section.command)))
    plots = [plot.speedups("Speed-up by K", section.labels, section.marks)]
    if section.acceptance:
        plots.append(plot.acceptance("Acceptance by position", section.acceptance))
    if section.costs is not None:
        plots.append(plot.costs("What a round costs", section.costs.verify, section.costs.draft_step))
    parts = [element("h2", section.name), element("div", *advice, class_=looks), _plots(plots)]
    parts += [element("p", plot.KEY, class_="soft"), _table(section)]
    if section.kinds:
        parts += [element("h3", "By kind of text"), _plots(_of_kinds(section))]
    return element("section", *parts)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _plots(plots: Sequence[Markup]) -> Markup:
    return element("div", *(element("figure", one) for one in plots), class_="plots")


def _of_kinds(section: Section) -> list[Markup]:
    """A speed-up plot for each kind, with the draft accuracy in its heading."""
    plots = []
    for kind in section.kinds:
        rate = "" if kind.judged_rate is None else f" · {100 * kind.judged_rate:.0f} % of judged accepted"
        plots.append(plot.speedups(f"{kind.name}{rate}", section.labels, kind.marks))
    return plots


def _table(section: Section) -> Markup:
    """The numbers of the plots."""
    head = element("tr", *(element("th", name, scope="col") for name in HEADINGS))
    rows = []
    for row, mark in zip(section.rows, section.marks, strict=True):
        label, *figures = cells(row)
        chosen = {"class_": "chosen"} if mark is not None and mark.chosen else {}
        line = [element("th", label, scope="row"), *(element("td", cell) for cell in figures)]
        rows.append(element("tr", *line, **chosen))
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="wide", role="region", tabindex="0", aria_label=f"Every K: {section.name}")


def _terms(pairs: Sequence[tuple[str, str]]) -> Markup:
    return joined([joined([element("dt", name), element("dd", definition)]) for name, definition in pairs], "\n")


def _explorer(found: Sequence[Section]) -> Markup:
    """The sliders, for the contenders whose costs are known."""
    known = [one for one in found if one.costs is not None]
    if not known:
        return Markup()
    options = [element("option", one.name) for one in known]
    select = element("select", *options, id="condition", aria_label="Which draft, at which temperature")
    return Markup(part("bench_sliders").replace("<!--choice-->", select if len(known) > 1 else ""))


def _data(found: Sequence[Section]) -> list[dict[str, object]]:
    """The sliders' data: one entry for each section whose costs are known."""
    return [
        {
            "name": one.name,
            "c": one.costs.draft_step,
            "v": one.costs.verify,
            "a": 0.0 if one.judged_rate is None else one.judged_rate,
            "k": one.recommendation.k if isinstance(one.recommendation.k, int) else len(one.costs.verify) - 1,
            "rates": [(kind.name, kind.judged_rate) for kind in one.kinds if kind.judged_rate is not None],
        }
        for one in found
        if one.costs is not None
    ]
