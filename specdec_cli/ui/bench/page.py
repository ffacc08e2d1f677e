"""The bench as one page with sliders, and its files. One file, no network, no library; every number is defined on it.

Two sliders predict the speed-up of another draft from this machine's costs. Their arithmetic is in `pages/bench.html`
and, for the tests to compare, in `predicted_speedup`. A missing figure stays empty.
Letters: K draft length, n rows of a target pass, v(n) its cost and c that of a draft step, both in plain steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from specdec_cli.bench import sentences
from specdec_cli.bench.estimate import FEWEST_PROMPTS, RULE, Interval
from specdec_cli.bench.report import (
    CostCurve,
    Report,
    Row,
    Source,
    acceptance_by_position,
    reports,
    source_of,
    sum_rounds,
)
from specdec_cli.bench.result import BenchResult, kinds_of
from specdec_cli.format import percent, size
from specdec_cli.gain import interpolate, round_steps, speedup, tokens_per_round
from specdec_cli.ui.bench import plot
from specdec_cli.ui.bench.plot import Mark
from specdec_cli.ui.bench.terminal import print_bench
from specdec_cli.ui.export import export_recorded, recorder
from specdec_cli.ui.html import Markup, element, fill, joined, packaged

PICTURE_COLUMNS: Final = 110
HEADINGS: Final = (
    "K",
    "speed-up",
    "95 %",
    "",
    "tokens/s",
    "accepted",
    "of judged",
    "tokens per pass",
    "draft share",
    "v(K + 1)",
    "first token",
    "peak memory",
)
TERMS: Final = (
    ("K", "draft length: tokens drafted a round; K 0 is plain decoding by mlx-lm, the baseline of every speed-up."),
    ("speed-up", "tokens a second ÷ the baseline's, prompt by prompt; the mean of their logarithms, as a ratio."),
    ("interval", "95 %, Student's t over prompts: where the mean of more such prompts is likely to lie."),
    ("too few", f"seen on fewer than {FEWEST_PROMPTS} prompts, so that there is no interval (cross)."),
    ("accepted", "accepted ÷ drafted tokens. Of judged: accepted ÷ (accepted + rejected), the draft accuracy a."),
    ("tokens per pass", "emitted tokens ÷ target passes: 1 when nothing is accepted, K + 1 when everything is."),
    ("draft share", "the draft's part of a round's time."),
    ("c, v(n)", "a draft step, and a target pass over n rows, in plain steps: one token by plain decoding."),
    ("S(K)", "(1 + a + … + a^K) ÷ (K·c + v(K + 1)): predicted speed-up if each token is accepted with probability a."),
)


def title(result: BenchResult) -> str:
    return f"{result.settings.pair} on {result.environment.chip}"


def subtitle(result: BenchResult) -> str:
    """What was measured on what, and when."""
    prompts = len({sample.prompt for sample in result.samples})
    kinds = ", ".join(dict.fromkeys(sample.prompt.kind for sample in result.samples))
    date = result.environment.date[:16].replace("T", " ")
    return f"target {result.settings.target} · {date} · {prompts} prompts: {kinds}"


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


def cells(row: Row) -> list[str]:
    """One row of the table, under `HEADINGS`."""
    pace = row.tokens_per_second
    return [
        str(row.k),
        "–" if row.speedup is None else f"{row.speedup.mean:.2f}×",
        _spread(row.speedup) if row.k != 0 else "",
        row.source,
        "–" if pace is None else f"{pace.mean:.1f}",
        percent(row.acceptance_rate),
        percent(row.judged_rate),
        "–" if row.mean_acceptance_length is None else f"{row.mean_acceptance_length:.2f}",
        percent(row.draft_share),
        "–" if row.verify_steps is None else f"{row.verify_steps:.2f}",
        "–" if row.ttft_seconds is None else f"{row.ttft_seconds:.2f} s",
        size(row.peak_memory_bytes),
    ]


def _spread(interval: Interval | None) -> str:
    """1.61–1.84; a dash where too few prompts give no interval."""
    if interval is None or interval.prompts < FEWEST_PROMPTS:
        return "–"
    return f"{interval.low:.2f}–{interval.high:.2f}"


def html_page(result: BenchResult) -> str:
    """The whole page."""
    found = reports(result)
    warnings = ["Interrupted: these numbers are valid, but fewer than planned."] if result.partial else []
    values = {
        "title": title(result),
        "subtitle": subtitle(result),
        "plot_style": packaged("plot.css"),
        "warnings": joined([element("p", words, class_="advice open", role="note") for words in warnings]),
        "sections": joined([_section(report) for report in found], "\n"),
        "explorer": _explorer(found),
        "facts": _terms(facts(result)),
        "terms": _terms(TERMS),
        "data": Markup(json.dumps([_dials(report) for report in found if report.curve]).replace("<", "\\u003c")),
    }
    return fill("bench", values)


def svg_picture(result: BenchResult) -> str:
    """The tables and sentences of the terminal."""
    console = recorder(PICTURE_COLUMNS)
    print_bench(console, result, reports(result))
    return export_recorded(console, ".svg", f"specdec bench: {title(result)}")


# Extension -> text of the file. Another format is one function and one line.
WRITERS: Final[dict[str, Callable[[BenchResult], str]]] = {
    ".json": sentences.json_text,
    ".html": html_page,
    ".svg": svg_picture,
}


def predicted_speedup(accuracy: float, k: int, draft_step: float, verify: Sequence[float]) -> float:
    """S(K) = (1 + a + … + a^K) / (K·c + v(K + 1)), as the page's script computes it."""
    return speedup(tokens_per_round(accuracy, k), round_steps(k, draft_step, verify[k]))


def verify_costs(curve: CostCurve) -> list[float]:
    """v(n) at [n - 1] for every n up to the largest measured one, linear in between; v(1) is a plain step."""
    known = {1: 1.0, **curve.verify}
    return [interpolate(known, n) for n in range(1, max(known) + 1)]


def _section(report: Report) -> Markup:
    """The recommendation, the plots, a row for each K and a plot for each kind."""
    advice, conclusion, even = report.recommendation, sentences.conclusion(report), sentences.break_even(report)
    look = {"use": "advice", "don't": "advice no"}.get(advice.answer, "advice open")
    said = f"Recommended: {conclusion}" if advice.answer == "use" else _sentence(conclusion)
    box = [element("strong", said), *([element("p", _sentence(even), class_="soft")] if even else [])]
    box.append(element("pre", element("code", sentences.command(report.result, report))))
    marks = [_mark(row.speedup, row.source, advice.marks(row.k)) for row in report.rows]
    plots = [plot.speedups("Speed-up by K", _labels(report), marks)]
    if rates := acceptance_by_position(report.at_fixed_k()):
        plots.append(plot.acceptance("Acceptance by position", rates))
    if report.curve is not None:
        plots.append(plot.costs("What a round costs", verify_costs(report.curve), report.curve.draft_step))
    parts = [element("h2", report.name), element("div", *box, class_=look), _plots(plots)]
    parts += [element("p", plot.KEY, class_="soft"), _table(report)]
    if kinds := kinds_of(report.prompts):
        parts += [element("h3", "By kind of text"), _plots([_kind(report, kind) for kind in kinds])]
    return element("section", *parts)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _labels(report: Report) -> list[str]:
    return [str(row.k) for row in report.rows]


def _plots(plots: Sequence[Markup]) -> Markup:
    return element("div", *(element("figure", one) for one in plots), class_="plots")


def _kind(report: Report, kind: str) -> Markup:
    """Speed-ups on one kind of text, with the draft accuracy in the heading."""
    figures = {one.arm.k: report.of_kind(one, kind) for one in report.estimates}
    found = [figures.get(row.k) for row in report.rows]
    marks = [_mark(figure, source_of(figure) if figure else None, False) for figure in found]
    rate = _judged_rate(report, kind)
    heading = f"{kind}{'' if rate is None else f' · {100 * rate:.0f} % of judged accepted'}"
    return plot.speedups(heading, _labels(report), [Mark(1.0, 1.0, 1.0), *marks[1:]])


def _judged_rate(report: Report, kind: str | None = None) -> float | None:
    """accepted ÷ judged, of all answers or of those of one kind."""
    return sum_rounds(report.at_fixed_k(kind)).judged_rate


def _mark(interval: Interval | None, source: Source | None, chosen: bool) -> Mark | None:
    """The mark of an interval; that of too few prompts has infinite bounds and is not drawn."""
    if interval is None or source is None:
        return None
    low, high = (interval.low, interval.high) if interval.prompts >= FEWEST_PROMPTS else (-inf, inf)
    return Mark(interval.mean, low, high, source, chosen)


def _table(report: Report) -> Markup:
    """The numbers of the plots."""
    head = element("tr", *(element("th", name, scope="col") for name in HEADINGS))
    rows = []
    for row in report.rows:
        label, *figures = cells(row)
        chosen = {"class_": "chosen"} if report.recommendation.marks(row.k) else {}
        line = [element("th", label, scope="row"), *(element("td", cell) for cell in figures)]
        rows.append(element("tr", *line, **chosen))
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="wide", role="region", tabindex="0", aria_label=f"Every K: {report.name}")


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
    rates = [(kind, _judged_rate(report, kind)) for kind in kinds_of(report.prompts)]
    return {
        "name": report.name,
        "c": report.curve.draft_step,
        "v": verify,
        "a": _judged_rate(report) or 0.0,
        "k": k if isinstance(k, int) else len(verify) - 1,
        "rates": [(kind, rate) for kind, rate in rates if rate is not None],
    }
