"""The bench as one page with sliders, and its files. One file, no network, no library; every number is defined on it.

The sliders predict the speed-up of another draft from this machine's costs; their arithmetic is in `pages/bench.html`.
Letters: K draft length, n rows of a target pass, v(n) its cost and c that of a draft step, both in plain steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from specdec_cli.apps.bench import sentences
from specdec_cli.apps.bench.estimate import RULE
from specdec_cli.apps.bench.report import CostCurve, LengthRow, Report, reports
from specdec_cli.apps.bench.result import BenchResult, kinds_of
from specdec_cli.apps.bench.screen import KIND_HEADINGS, cells, furthest, has_interval, kind_cells
from specdec_cli.core.gain import interpolate
from specdec_cli.measure.intervals import FEWEST_PROMPTS
from specdec_cli.terminal.html import Markup, element, fill, joined, packaged

HEADINGS: Final = (
    *("K", "tokens/s", "speed-up", "accepted", "tokens per pass", "draft share", "pass cost", "first token"),
    *("peak memory", "speed-up (dashed: plain)"),
)
TERMS: Final = (
    ("K", "draft length: tokens drafted a round; K 0 is plain decoding by mlx-lm, the baseline of every speed-up."),
    ("speed-up", "tokens a second ÷ the baseline's, prompt by prompt; the mean of their logarithms, as a ratio."),
    (
        "±",
        "95 %, Student's t over prompts: where the mean of more such prompts is likely to lie. Missing for fewer than "
        f"{FEWEST_PROMPTS} prompts were measured, and where it is wider than the figure.",
    ),
    ("accepted", "accepted ÷ drafted tokens. The draft accuracy a is accepted ÷ (accepted + rejected)."),
    ("tokens per pass", "emitted tokens ÷ target passes: 1 when nothing is accepted, K + 1 when everything is."),
    ("draft share", "the draft's part of a round's time."),
    ("pass cost", "v(K + 1) below: the time of a target pass that checks K tokens, in plain tokens."),
    (
        "c, v(n)",
        "a draft step, and a target pass over n rows, in plain tokens: the time of one token by plain decoding.",
    ),
    ("S(K)", "(1 + a + … + a^K) ÷ (K·c + v(K + 1)): predicted speed-up if each token is accepted with probability a."),
)


def title(result: BenchResult) -> str:
    return f"{result.settings.pair} on {result.environment.chip}"


def html_page(result: BenchResult) -> str:
    """The whole page."""
    found = reports(result)
    prompts = {sample.prompt for sample in result.samples}
    date = result.environment.date[:16].replace("T", " ")
    warning = element("p", "Interrupted: these numbers are valid, but fewer than planned.", class_="advice open")
    values = {
        "title": title(result),
        "subtitle": f"target {result.settings.target} · {date} · {len(prompts)} prompts",
        "warnings": warning if result.partial else "",
        "sections": joined([_section(report) for report in found], "\n"),
        "explorer": _explorer(found),
        "facts": _terms(facts(result)),
        "terms": _terms(TERMS),
        "data": Markup(json.dumps([_dials(report) for report in found if report.curve]).replace("<", "\\u003c")),
    }
    return fill("bench", values)


# Extension -> text of the file. Another format is one function and one line.
WRITERS: Final[dict[str, Callable[[BenchResult], str]]] = {
    ".json": sentences.json_text,
    ".html": html_page,
}


def facts(result: BenchResult) -> list[tuple[str, str]]:
    """The machine, the software and the settings."""
    settings, machine = result.settings, result.environment
    ends = "natural, by a stop token" if settings.ends == "natural" else "fixed, stop tokens ruled out"
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    return [
        ("machine", f"{machine.chip}, {memory}, {machine.cores} cores, {machine.system}"),
        ("state", sentences.surroundings(result) or "not known"),
        ("computed on", f"{machine.device}, {machine.dtype}"),
        ("software", ", ".join(f"{name} {number}" for name, number in machine.versions.items())),
        ("sampling", f"rule {settings.rule}, seed {settings.seed}"),
        ("prompts", settings.prompts),
        ("answers", f"{len(result.samples)} of at most {settings.max_tokens} tokens; ends {ends}"),
        ("time", f"{result.seconds:.0f} s of {settings.budget_seconds:.0f} s allowed"),
        ("recommended", RULE),
    ]


def verify_costs(curve: CostCurve) -> list[float]:
    """v(n) at [n - 1] for every n up to the largest measured one, linear in between; v(1) is a plain step."""
    known = {1: 1.0, **curve.verify}
    return [interpolate(known, n) for n in range(1, max(known) + 1)]


def _section(report: Report) -> Markup:
    """The recommendation, a row for each K and one for each kind of text."""
    advice, conclusion, even = report.recommendation, sentences.conclusion(report), sentences.break_even(report)
    look = {"use": "advice", "don't": "advice no"}.get(advice.answer, "advice open")
    said = f"Recommended: {conclusion}" if advice.answer == "use" else f"{conclusion[:1].upper()}{conclusion[1:]}."
    box = [element("strong", said), *([element("p", even, class_="soft")] if even else [])]
    box.append(element("pre", element("code", sentences.command(report))))
    most = furthest(report.rows)
    rows = [([*cells(row), _gauge(row, most)], advice.marks(row.k)) for row in report.rows]
    parts = [element("h2", report.name), element("div", *box, class_=look), _table(HEADINGS, rows, report.name)]
    if report.kinds:
        kinds = [(kind_cells(row), False) for row in report.kinds]
        parts += [element("h3", "By kind of text"), _table(KIND_HEADINGS, kinds, f"kinds, {report.name}")]
    return element("section", *parts)


def _gauge(row: LengthRow, most: float) -> Markup:
    """A bar from 0 to `most` with its interval, and plain decoding as a line."""

    def percent(value: float) -> float:
        return 100 * min(value / most, 1.0)

    found = row.speedup
    width = percent(found.mean) if found else 0.0
    parts = [element("span", class_="pace" if row.measured else "pace few", style=f"width: {width:.1f}%")]
    if found and has_interval(found):
        left, right = percent(found.low), percent(found.high)
        parts.append(element("i", style=f"left: {left:.1f}%; width: {right - left:.1f}%"))
    parts.append(element("b", style=f"left: {percent(1.0):.1f}%"))
    return element("span", *parts, class_="gauge")


def _table(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]], name: str) -> Markup:
    """Rows of cells, the first of each its label; those that are chosen are marked."""
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    body = []
    for (label, *figures), chosen in rows:
        line = [element("th", label, scope="row"), *(element("td", cell) for cell in figures)]
        body.append(element("tr", *line, **({"class_": "chosen"} if chosen else {})))
    table = element("table", element("thead", head), element("tbody", *body))
    return element("div", table, class_="wide", role="region", tabindex="0", aria_label=name)


def _terms(pairs: Sequence[tuple[str, str]]) -> Markup:
    return joined([joined([element("dt", name), element("dd", definition)]) for name, definition in pairs], "\n")


def _explorer(found: Sequence[Report]) -> Markup:
    """The sliders, for the contenders whose costs are known."""
    options = [element("option", report.name) for report in found if report.curve]
    if not options:
        return Markup()
    select = element("select", *options, id="condition", aria_label="Which draft, at which temperature")
    return Markup(packaged("bench_sliders.html").replace("<!--choice-->", select if len(options) > 1 else ""))


def _dials(report: Report) -> dict[str, Any]:
    """What the sliders start from, and the measured accuracy of each kind."""
    assert report.curve is not None
    verify, k = verify_costs(report.curve), report.recommendation.k
    rates = [(kind, report.judged_rate(kind)) for kind in kinds_of(report.prompts)]
    return {
        "name": report.name,
        "c": report.curve.draft_step,
        "v": verify,
        "a": report.judged_rate() or 0.0,
        "k": k if isinstance(k, int) else len(verify) - 1,
        "rates": [(kind, rate) for kind, rate in rates if rate is not None],
    }
