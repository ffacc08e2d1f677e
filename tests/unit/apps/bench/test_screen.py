"""The bench's tables, whole, at the widths people have."""

import io
import re
from dataclasses import replace

import pytest

from fakes.bench import sample_result
from specdec_cli.apps.bench.report import compare, reports
from specdec_cli.apps.bench.result import Contender
from specdec_cli.apps.bench.screen import _change, bench_progress, print_bench, print_comparison
from specdec_cli.core.progress import Step
from specdec_cli.measure.intervals import Interval
from specdec_cli.system.machine import MachineState
from specdec_cli.terminal.panel.status import StatusLine
from specdec_cli.terminal.terminal import make_console

GOLDEN_80 = """\
qwen3-8b · Qwen3-8B-4bit + Qwen3-0.6B-4bit
Apple M4 Pro · 96 tokens, natural ends · 56 bundled prompts of 7 kinds · 1 min
59 s

 K         tok/s    speed-up │ plain     acc. /pass draft cost  TTFT   peak
 0     50.5 ±0.9       1.00× ━━━━┿                             80 ms 5.0 GB
 1     80.0 ±6.9 1.60 ±0.16× ━━━━┿━━├┤   75 %  1.74  20 % 0.98 80 ms 5.7 GB
★2     84.1 ±4.4 1.66 ±0.10× ━━━━┿━━├┤   64 %  2.25  20 % 1.15 79 ms 5.7 GB
 3    72.8 ±20.6 1.44 ±0.41× ━━━━┿├━━─┤  50 %  2.47  20 % 1.47 80 ms 5.7 GB
 4    63.1 ±21.7 1.25 ±0.44× ━━━━┿━━─┤   42 %  2.61  20 % 1.74 81 ms 5.7 GB
 5    66.4 ±24.6 1.31 ±0.48× ━━━━┿━━──┤  46 %  3.22  20 % 2.09 79 ms 5.7 GB
 6    57.5 ±33.7 1.14 ±0.72× ━━├━┿━────┤ 41 %  3.36  20 % 2.53 80 ms 5.7 GB
 7    57.5 ±32.5 1.15 ±0.63× ━━━├┿━───┤  41 %  3.74  20 % 2.86 80 ms 5.7 GB
 8    54.5 ±31.2 1.09 ±0.61× ━━├━┿━───┤  36 %  3.77  20 % 3.02 79 ms 5.7 GB
 auto 64.1 ±23.5 1.27 ±0.50× ━━━━┿━━──┤  46 %  2.77  20 %      79 ms 5.7 GB
±: the 95 % interval over prompts, of at least 3; 15 were measured

kind  best K     speed-up  accepted
code       2  1.91 ±0.18×      82 %

result      K 2: 1.66× faster (1.53–1.81), on 15 prompts
break-even  a round at K 2 takes the time of 1.35 plain tokens: it pays where
            more than 27 % of judged tokens are accepted; here 75 % were
rule        the smallest K within noise and 2 % of the fastest; a K is faster if
            its whole 95 % interval is above 1
machine     on mains, low-power mode off, thermal pressure nominal, load 1.4
            then 2.2 on 14 cores

specdec run -p qwen3-8b --drafter model -k 2 'your prompt'
"""


def drawn(result, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    print_bench(make_console(out, plain=False), result, reports(result))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=120.0)


def test_the_whole_screen(result, monkeypatch):
    assert drawn(result, 80, monkeypatch) == GOLDEN_80


@pytest.mark.parametrize(("before", "after", "busy"), [(14.5, 14.5, True), (1.0, 19.9, True), (14.0, 15.0, False)])
def test_a_machine_with_more_to_do_than_cores_is_told_beside_the_result(result, monkeypatch, before, after, busy):
    """It stood near the end, as figures. The bench itself uses all 14 cores, but no more."""
    states = {"before": MachineState(load=before), "after": MachineState(load=after)}
    rows = drawn(replace(result, environment=replace(result.environment, **states)), 80, monkeypatch).splitlines()
    at = next(i for i, row in enumerate(rows) if row.startswith("result "))
    assert ("other programs were running: rerun on an idle machine" in rows[at + 1]) == busy


def test_a_bench_that_says_don_t_says_so_first_and_names_plain_decoding(monkeypatch):
    found = drawn(sample_result("M1 Pro", budget_seconds=120.0), 80, monkeypatch)
    assert "plain decoding (K 0): no K is clearly faster; the best, K 1:" in " ".join(found.split())
    assert found.rstrip().endswith("specdec run -p qwen3-8b -k 0 'your prompt'")
    assert found.count("★") == found.count("★0") == 1


def test_several_drafts_are_compared_in_one_table_at_their_best_k(monkeypatch):
    """Before the tables of each; without several there is none."""
    two = (Contender("model", "org/small"), Contender("translated", "org/other"))
    found = drawn(sample_result(contenders=two), 80, monkeypatch).splitlines()
    at = next(i for i, line in enumerate(found) if line.startswith("  draft"))
    assert found[at].split() == ["draft", "temperature", "K", "tok/s", "speed-up", "acc.", "/pass"]
    rows = [line.split() for line in found[at + 1 : at + 3]]
    assert {row[1] if row[0] == "★" else row[0] for row in rows} == {"small", "other"}
    assert sum(row[0] == "★" for row in rows) == 1
    marked = next(line for line in found[at + 3 :] if line.startswith("★")).split()
    assert any(marked[1] in row for row in rows) and "  draft" not in GOLDEN_80


# Two benches side by side


# Progress


def test_a_comparison_shows_k_as_typed_and_no_interval_that_says_nothing(result):
    """`ks (0, 1, 2, … 'auto')  (2,)` and `-16.7 % (-99.5 to +14079.6)`."""
    some = replace(result, settings=replace(result.settings, ks=(0, 2, 3, 4, 6, "auto")))
    slowed = [replace(s, decode_seconds=s.decode_seconds * (1 + 99 * (i % 2))) for i, s in enumerate(some.samples)]
    noisy = replace(some, samples=slowed)
    out = io.StringIO()
    print_comparison(out, compare(result, noisy), ("one.json", "other.json"))
    text = out.getvalue()
    assert "0-8,auto" in text and "0,2-4,6,auto" in text and "(0, 1" not in text
    assert "too noisy" in text and not re.search(r"\+\d{4,}", text)
    calm = io.StringIO()
    print_comparison(calm, compare(result, some), ("one.json", "other.json"))
    assert "too noisy" not in calm.getvalue()
    assert _change(Interval(1.1, 1.0, 1.2, 2)).plain == "+10.0 % (+0.0 to +20.0)"  # two prompts are few, not noisy


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_says_how_far_it_is_and_what_is_measured(quiet, monkeypatch):
    err, heard = io.StringIO(), []
    monkeypatch.setattr(StatusLine, "say", lambda _, step: heard.append(step))
    with bench_progress(err, quiet) as (on_progress, tell):
        on_progress("measuring K 4 on chat: b", 0.2, 100.0)
        tell("this machine is slow")
    assert heard == [Step("", 20, 100, "%", "1:40 left · K 4 on chat: b")]
    assert err.getvalue() == "" if quiet else "this machine is slow\n"
