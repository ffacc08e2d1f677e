"""A report on the screen: one line for each question, in words."""

import pytest

from fakes.report import MACHINE, bench_row, report
from specdec_cli.ui.report import cautions, report_rows


def lines(**parts):
    """(value, note) by line, with the data of `parts` in place of the report's own."""
    values = report()
    for part in values["parts"]:
        part |= parts.get(part["name"].replace("-", "_"), {})
    return {name: (value, note) for name, value, note in report_rows(values)}


def test_the_screen_answers_every_question_of_the_first_day():
    found = lines()
    assert found["chip"] == ("Apple M4 Pro", "macOS 15.7 24G222, computes on metal") and len(found) <= 20
    costs = "c 0.15, v(2) 1.2, v(4) 1.6, v(8) 2.4, v(16) 4, v(32) 7.2"
    assert found["target, at 512 tokens"] == ("20.0 ms a row", costs)
    assert found["target, at 8192 tokens"] == ("–", "caches of 8192 tokens do not fit this machine's memory")
    assert found["work in flight"] == (
        "32.0 ms a round",
        "as it is: draft 25.0 + verify 7.0 ms; never stopped: draft 12.5 + verify 19.5 ms",
    )
    assert found["audit"] == ("0 diverged", "2 identical, 1 near-tie; largest gap 0.12")
    assert found["bench"] == ("best K 4, 1.80× faster (1.70–1.90)", "K 4 is best")
    passed = "passed: kernels real models use 1 of 1, rollback logic in float32 1 of 2"
    assert found["self-test"] == ("0 wrong", passed)
    assert found["memory in use"][0] == "5.0 GB" and found["left out"] == ("1", "rows at 8192")
    assert found["caution"][0] == "hot" and found["time"] == ("280 s", "of 300 s")


def test_what_is_unknown_or_wrong_says_so():
    row = {**bench_row(4, 1.8, 90.0), "speedup_low": 0.0, "speedup_high": 1e304}
    wrong = {"name": "gemma3", "status": "wrong", "proves": "rollback logic, float32", "detail": ""}
    found = lines(bench={"data": {"rows": [row]}}, self_test={"data": {"outcomes": [wrong]}},
                  audit={"data": {}, "status": "failed", "note": "RuntimeError: x"})  # fmt: skip
    assert found["bench"][0] == "best K 4, cannot tell yet"
    assert found["self-test"][0] == "1 wrong" and found["self-test"][1].endswith("; wrong: gemma3")
    assert found["audit"] == ("–", "RuntimeError: x") and found["left out"] == ("2", "rows at 8192, audit")
    assert report_rows(report() | {"parts": []})[0][0] == "pair"


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({"load": 7.0}, "busy"),
        ({"power": "battery"}, "battery"),
        ({"low_power_mode": True}, "low power mode"),
        ({"thermal": "heavy"}, "hot"),
    ],
)
def test_what_makes_figures_worse_is_a_caution(state, word):
    calm = {**MACHINE["state"], "thermal": "nominal"}
    assert [found for found, _ in cautions(MACHINE | {"state": calm | state}, calm)] == [word]
    assert cautions(MACHINE | {"state": calm}, calm) == []
