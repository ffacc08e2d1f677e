"""The bench's page and its tables for others: whole, harmless, and with sliders that reckon right."""

import html
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fakes.bench import DRAFT, sample_result
from specdec_cli.apps.bench.page import html_page, verify_costs
from specdec_cli.apps.bench.report import CostCurve, reports
from specdec_cli.apps.bench.result import Contender
from specdec_cli.apps.bench.screen import bar, print_bench
from specdec_cli.core.gain import round_steps, speedup, tokens_per_round
from specdec_cli.measure.intervals import Interval
from specdec_cli.system.machine import MachineState
from specdec_cli.terminal.terminal import make_console


def drawn(result, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    print_bench(make_console(out, plain=False), result, reports(result))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=120.0)


@pytest.mark.parametrize(("before", "after", "busy"), [(14.5, 14.5, True), (1.0, 19.9, True), (14.0, 15.0, False)])
def test_a_machine_with_more_to_do_than_cores_is_told_beside_the_result(result, monkeypatch, before, after, busy):
    """It stood near the end, as figures. The bench itself uses all 14 cores, but no more."""
    states = {"before": MachineState(load=before), "after": MachineState(load=after)}
    rows = drawn(replace(result, environment=replace(result.environment, **states)), 80, monkeypatch).splitlines()
    at = next(i for i, row in enumerate(rows) if row.startswith("result "))
    assert ("other programs were running: rerun on an idle machine" in rows[at + 1]) == busy


def test_a_target_that_is_no_pair_of_its_own_is_named_once(result, monkeypatch):
    named = replace(result, settings=replace(result.settings, pair="Qwen-1.5B", target="lmstudio-community/Qwen-1.5B"))
    assert drawn(named, 80, monkeypatch).startswith("Qwen-1.5B + Qwen3-0.6B-4bit\n")


def test_the_bar_of_plain_decoding_is_neither_green_nor_yellow():
    styles = [str(bar(Interval(mean, mean, mean, 3), 2.0, 10, True).spans[0].style) for mean in (0.9, 1.0, 1.1)]
    assert styles == ["yellow", "default", "green"]


VOID = {"meta", "input", "hr", "br", "link", "img"}
C, V = 0.1, [1.0, 1.05, 1.2, 1.6, 2.2]


def predicted(accuracy, k, draft_step=C, verify=V):
    return speedup(tokens_per_round(accuracy, k), round_steps(k, draft_step, verify[k]))


@pytest.fixture(scope="module")
def page(result):
    return html_page(result)


def data_of(page):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(found)


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of order or never."""

    def __init__(self):
        super().__init__()
        self.open, self.ids = [], []

    def handle_starttag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_loads_nothing_and_every_label_names_its_slider(page):
    parser = Balanced()
    parser.feed(page)
    assert parser.open == [] and len(set(parser.ids)) == len(parser.ids)
    assert set(re.findall(r'<label for="(\w+)"', page)) == set(re.findall(r'<input type="range" id="(\w+)"', page))
    assert not re.search(r"""(src|href|action)=|url\(|@import|https?://|fetch\(|import\(""", page)


def shown(page):
    (found,) = re.findall(r'<pre class="report">\n(.*?)</pre>', page, re.S)
    return html.unescape(re.sub("<[^>]*>", "", found))


def test_the_page_has_what_the_terminal_shows(result, page, monkeypatch):
    assert "\n".join(line.rstrip() for line in shown(page).splitlines()) + "\n" == drawn(result, 110, monkeypatch)


def test_an_interrupted_bench_says_so_and_an_interval_of_too_few_prompts_is_not_written():
    """One measured prompt of `auto` once had an interval up to exp(700), and the table was a thousand digits wide."""
    few = sample_result(cancel_after=20)
    text = shown(html_page(few))
    assert few.partial and "partial: interrupted" in text and "the safest choice" in text
    assert max(map(len, text.split())) < 40
    empty = replace(few, samples=())
    assert "<h1>" in html_page(empty) and 'id="accuracy"' not in html_page(empty)


def test_foreign_names_are_never_markup():
    kinds = {"</script><b>\x1b[2J\u202e": 0.8, "code": 0.8}
    hostile = sample_result(pair='"><script>alert(1)</script>\x00', kinds=kinds)
    page = html_page(hostile)
    assert page.count("<script") == 3 and "<b>\x1b" not in page and not re.search("[\x00\x1b\u202e]", page)
    assert data_of(page)[0]["rates"][0][0].startswith("</script>")


def test_the_sliders_have_the_measured_costs_and_rows_that_were_not_measured_lie_between(result, page):
    (report,), (entry,) = reports(result), data_of(page)
    assert (entry["c"], entry["v"]) == (report.curve.draft_step, verify_costs(report.curve))
    assert entry["k"] == report.recommendation.k and len(entry["rates"]) == 7
    assert verify_costs(CostCurve({1: 0.1}, {3: 1.4, 5: 2.0}, 0.02)) == pytest.approx([1.0, 1.2, 1.4, 1.7, 2.0])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_page_s_script_reckons_as_the_tested_formula_does(page):
    (model,) = re.findall(r'<script id="model">(.*?)</script>', page, re.S)
    grid = [(a / 10, k) for a in range(11) for k in range(5)]
    script = model + (
        f"const v = {V}, c = {C};"
        f"console.log(JSON.stringify({[list(pair) for pair in grid]}.map(([a, k]) => predictedSpeedup(a, k, c, v))));"
        "console.log(JSON.stringify([0, 1, 2, 3, 4].map((k) => breakEven(k, c, v))));"
        "console.log(JSON.stringify(breakEven(1, 0.5, [1, 1.6])));"
    )
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True, timeout=60)
    speeds, evens, never = map(json.loads, done.stdout.splitlines())
    assert speeds == pytest.approx([predicted(a, k) for a, k in grid])
    assert evens[0] is None and never is None
    assert [predicted(even, k) for k, even in enumerate(evens[1:], 1)] == pytest.approx([1.0] * 4)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_moved_sliders_show_the_new_numbers_in_a_browser(page, result, tmp_path):
    """The address carries the positions, by the same way that a hand moves the sliders."""
    file = tmp_path / "page.html"
    file.write_text(page)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{file}#a=90&k=5"]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    (curve,) = (report.curve for report in reports(result))
    tokens, speed = tokens_per_round(0.9, 5), predicted(0.9, 5, curve.draft_step, verify_costs(curve))
    shown = {name: re.search(rf'<b id="{name}"[^>]*>([^<]*)<', seen)[1] for name in ("speedup", "saved", "tokens")}
    assert shown == {"speedup": f"{speed:.2f}×", "saved": str(round(100 - 100 / tokens)), "tokens": f"{tokens:.2f}"}
    assert 'aria-valuetext="5 draft tokens a round"' in seen


def test_several_contenders_can_be_chosen_between():
    page = html_page(sample_result(contenders=(DRAFT, Contender("ngram")), temperatures=(0.0, 0.7), budget_seconds=400))
    names = [entry["name"] for entry in data_of(page)]
    assert len(names) == 4 and names[1] == "ngram, temperature 0"
    assert [html.unescape(name) for name in re.findall(r"<option>(.*?)</option>", page)] == names
