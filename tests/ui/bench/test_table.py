"""The bench's tables, whole, at the widths people have."""

import io
from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import reports
from specdec_cli.bench.result import Contender
from specdec_cli.machine import MachineState
from specdec_cli.ui.bench.table import bar, print_bench

GOLDEN_80 = """\
qwen3-8b · Qwen3-8B-4bit + Qwen3-0.6B-4bit
Apple M4 Pro · 96 tokens, natural ends · bundled · 2 min 0 s

 K         tok/s     speed-up             acc. /pass draft    v   TTFT   peak
 0     49.8 ±0.6        1.00× ━━━━━┿                            100 ms 5.0 GB
 1     76.5 ±8.1  1.54 ±0.16× ━━━━━┿━━━━  76 %  1.75  20 % 1.00  99 ms 5.7 GB
★2     87.1 ±2.6  1.75 ±0.05× ━━━━━┿━━━━━ 67 %  2.31  20 % 1.14 100 ms 5.7 GB
 3    ~79.0 ±2.8 ~1.59 ±0.06× ╌╌╌╌╌┼╌╌╌╌  59 %  2.74  17 % 1.44        5.7 GB
 4    ~72.5 ±3.5 ~1.46 ±0.07× ╌╌╌╌╌┼╌╌╌   52 %  3.04  19 % 1.75
 5    ~65.3 ±3.5 ~1.31 ±0.07× ╌╌╌╌╌┼╌╌    47 %  3.26  19 % 2.13
 6    ~59.5 ±3.4 ~1.19 ±0.07× ╌╌╌╌╌┼╌╌    43 %  3.47  19 % 2.50
 7    ~55.5 ±3.4 ~1.11 ±0.07× ╌╌╌╌╌┼╌     39 %  3.61  20 % 2.84
 8    ~52.9 ±3.5 ~1.06 ±0.07× ╌╌╌╌╌┼╌     36 %  3.71  20 % 3.09
 auto 71.8 ±15.2  1.44 ±0.30× ━━━━━┿━━━   46 %  2.78  20 %      102 ms 5.7 GB
± 95 % over prompts (23 confirmed, 30 offline); ~ predicted from offline
acceptance and measured costs; v(K+1): a pass of K+1 rows, in plain steps; │
plain decoding

kind       best K      speed-up  accepted
code            2   2.02 ±0.18×      83 %
chat            2   1.67 ±0.29×      62 %
prose           1  ~1.35 ±0.20×      51 %
summary         2   1.93 ±0.29×      75 %
json            2   2.00 ±0.15×      84 %
edit            3  ~2.02 ±0.29×      87 %
reasoning       2   1.73 ±0.22×      57 %

result      K 2: 1.75× (1.70 to 1.80), measured on 23 prompts
why         one more draft token adds 0.44 to the 2.31 tokens of a round (+19 %)
            and 0.40 to its 1.33 plain steps (+30 %)
break-even  K 2 costs 1.34 plain steps a round: it pays where more than 27 % of
            judged tokens are accepted; here 76 % were
rule        the smallest K within noise and 2 % of the fastest; none whose 95 %
            interval includes 1
machine     baseline +1.9 % from first to last, on mains, low-power mode off,
            thermal pressure nominal, load 1.4 then 2.2 on 14 cores

specdec run -p qwen3-8b --drafter model -k 2 'your prompt'
"""


GOLDEN_120 = """\
qwen3-8b · Qwen3-8B-4bit + Qwen3-0.6B-4bit
Apple M4 Pro · 96 tokens, natural ends · bundled · 2 min 0 s

 K          tok/s      speed-up                              accepted  per pass  draft  v(K+1)  first token    peak
 0      49.8 ±0.6         1.00×  ━━━━━━━━━━━━━━┿                                                     100 ms  5.0 GB
 1      76.5 ±8.1   1.54 ±0.16×  ━━━━━━━━━━━━━━┿━━━━━━━━         76 %      1.75   20 %    1.00        99 ms  5.7 GB
★2      87.1 ±2.6   1.75 ±0.05×  ━━━━━━━━━━━━━━┿━━━━━━━━━━━      67 %      2.31   20 %    1.14       100 ms  5.7 GB
 3     ~79.0 ±2.8  ~1.59 ±0.06×  ╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌        59 %      2.74   17 %    1.44               5.7 GB
 4     ~72.5 ±3.5  ~1.46 ±0.07×  ╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌          52 %      3.04   19 %    1.75
 5     ~65.3 ±3.5  ~1.31 ±0.07×  ╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌            47 %      3.26   19 %    2.13
 6     ~59.5 ±3.4  ~1.19 ±0.07×  ╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌              43 %      3.47   19 %    2.50
 7     ~55.5 ±3.4  ~1.11 ±0.07×  ╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌               39 %      3.61   20 %    2.84
 8     ~52.9 ±3.5  ~1.06 ±0.07×  ╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌                36 %      3.71   20 %    3.09
 auto  71.8 ±15.2   1.44 ±0.30×  ━━━━━━━━━━━━━━┿━━━━━━           46 %      2.78   20 %               102 ms  5.7 GB
± 95 % over prompts (23 confirmed, 30 offline); ~ predicted from offline acceptance and measured costs; v(K+1): a pass
of K+1 rows, in plain steps; │ plain decoding

kind       best K      speed-up  accepted
code            2   2.02 ±0.18×      83 %
chat            2   1.67 ±0.29×      62 %
prose           1  ~1.35 ±0.20×      51 %
summary         2   1.93 ±0.29×      75 %
json            2   2.00 ±0.15×      84 %
edit            3  ~2.02 ±0.29×      87 %
reasoning       2   1.73 ±0.22×      57 %

result      K 2: 1.75× (1.70 to 1.80), measured on 23 prompts
why         one more draft token adds 0.44 to the 2.31 tokens of a round (+19 %) and 0.40 to its 1.33 plain steps (+30
            %)
break-even  K 2 costs 1.34 plain steps a round: it pays where more than 27 % of judged tokens are accepted; here 76 %
            were
rule        the smallest K within noise and 2 % of the fastest; none whose 95 % interval includes 1
machine     baseline +1.9 % from first to last, on mains, low-power mode off, thermal pressure nominal, load 1.4 then
            2.2 on 14 cores

specdec run -p qwen3-8b --drafter model -k 2 'your prompt'
"""


def drawn(result, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    print_bench(out, result, reports(result))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=120.0)


@pytest.mark.parametrize(("width", "golden"), [(80, GOLDEN_80), (120, GOLDEN_120)])
def test_the_whole_screen(width, golden, result, monkeypatch):
    assert drawn(result, width, monkeypatch) == golden


@pytest.mark.parametrize("width", [60, 76, 80, 99, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(width, result, monkeypatch):
    found = drawn(result, width, monkeypatch)
    assert max(map(len, found.splitlines())) <= width
    assert "…" not in found


def test_a_bench_that_says_don_t_says_so_first_and_names_plain_decoding(monkeypatch):
    found = drawn(sample_result("M1 Pro", budget_seconds=120.0), 80, monkeypatch)
    assert "don't use this draft for this" in " ".join(found.split())
    assert found.rstrip().endswith("specdec run -p qwen3-8b -k 0 'your prompt'")
    assert "★" not in found


def test_of_two_drafts_the_better_one_is_named_in_the_command(monkeypatch):
    two = (Contender("model", "org/small"), Contender("ngram"))
    found = drawn(replace_named(sample_result(budget_seconds=240.0, contenders=two)), 80, monkeypatch)
    assert found.count("result ") == 2 and found.count("the better one") == 1
    assert "small · temperature 0" in found and "ngram · temperature 0" in found


def replace_named(result):
    return replace(result, settings=replace(result.settings, named=False))


def test_a_partial_result_is_marked(monkeypatch):
    found = drawn(sample_result(cancel_after=40.0), 80, monkeypatch)
    assert "partial: interrupted" in found


def test_control_codes_of_names_do_not_reach_the_terminal(result, monkeypatch):
    evil = "\x1b]0;title\x07\x9b2Jpair"
    settings = replace(result.settings, pair=evil, target=f"org/{evil}", prompts=evil)
    environment = replace(result.environment, chip=evil, before=MachineState(evil, None, evil, None))
    found = drawn(replace(result, settings=settings, environment=environment), 80, monkeypatch)
    assert not {"\x1b", "\x07", "\x9b"} & set(found)


def test_bars_share_a_scale_and_cross_plain_decoding():
    assert bar(2.0, 2.0, 8, True).plain == "━━━┿━━━━"
    assert bar(1.0, 2.0, 8, False).plain == "╌╌╌┼    "
    assert bar(0.5, 2.0, 8, True).plain == "━━ │    "
