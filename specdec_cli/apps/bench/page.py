"""The bench as one page with sliders, and its files. One file, no network, no library; every number is defined on it.

The sliders predict the speed-up of another draft from this machine's costs; their arithmetic is in `pages/bench.html`.
Letters: K draft length, n rows of a target pass, v(n) its cost and c that of a draft step, both in plain steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from specdec_cli.apps.bench import sentences
from specdec_cli.apps.bench.estimate import RULE
from specdec_cli.apps.bench.report import CostCurve, Report, reports
from specdec_cli.apps.bench.result import BenchResult, kinds_of
from specdec_cli.apps.bench.screen import print_bench
from specdec_cli.core.gain import interpolate
from specdec_cli.measure.intervals import FEWEST_PROMPTS
from specdec_cli.terminal.export import as_markup, recorder
from specdec_cli.terminal.html import Markup, element, fill, joined, packaged

# As wide as the widest table.
COLUMNS: Final = 110
TERMS: Final = (
    ("K", "draft length: tokens drafted a round; K 0 is plain decoding by mlx-lm, the baseline of every speed-up."),
    ("speed-up", "tokens a second ÷ the baseline's, prompt by prompt; the mean of their logarithms, as a ratio."),
    (
        "±",
        "95 %, Student's t over prompts: where the mean of more such prompts is likely to lie. It is missing "
        f"where fewer than {FEWEST_PROMPTS} prompts were measured, and where it is wider than the figure.",
    ),
    ("accepted", "accepted ÷ drafted tokens. The draft accuracy a is accepted ÷ (accepted + rejected)."),
    ("per pass", "emitted tokens ÷ target passes: 1 when nothing is accepted, K + 1 when everything is."),
    ("draft", "the draft's part of a round's time."),
    ("pass cost", "v(K + 1) below: the time of a target pass that checks K tokens, in plain tokens."),
    (
        "c, v(n)",
        "a draft step, and a target pass over n rows, in plain tokens: the time of one token by plain decoding.",
    ),
    ("S(K)", "(1 + a + … + a^K) ÷ (K·c + v(K + 1)): predicted speed-up if each token is accepted with probability a."),
)


def html_page(result: BenchResult) -> str:
    """The whole page: what the terminal shows, the sliders, and what every word means."""
    found, console = reports(result), recorder(COLUMNS)
    print_bench(console, result, found)
    values = {
        "title": f"{result.settings.pair} on {result.environment.chip}",
        "report": as_markup(console),
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
