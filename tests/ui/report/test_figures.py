"""The summary: one line for each question, in words."""

from dataclasses import replace

import pytest

from fakes.report import MACHINE, report
from specdec_cli.audit.report.result import Part
from specdec_cli.ui.report.figures import cautions, milliseconds, summary, title


def lines(**changed):
    return {name: (value, note) for name, value, note in summary(report(**changed))}


def test_the_summary_answers_every_question_of_the_first_day():
    found = lines()
    assert title(report()) == "qwen3-8b on Apple M4 Pro"
    costs = "c 0.15, v(2) 1.2, v(4) 1.6, v(8) 2.4, v(16) 4, v(32) 7.2"
    assert found["target, at 512 tokens"] == ("20.0 ms a row", costs)
    assert found["work in flight"] == (
        "32.0 ms a round",
        "as it is: draft 25.0 + verify 7.0 ms; never stopped: draft 12.5 + verify 19.5 ms",
    )
    assert found["audit"] == ("0 diverged", "2 identical, 1 near-tie; largest gap 0.12")
    assert found["bench"] == ("best K 4, 1.80× faster (1.70–1.90)", "K 4 is best")
    passed = "passed: kernels real models use 1 of 1, rollback logic in float32 1 of 2"
    assert found["self-test"] == ("0 wrong", passed)
    assert found["memory in use"][0] == "5.0 GB" and found["time"] == ("280 s", "of 300 s")


def test_a_predicted_best_k_is_said_to_be_predicted():
    bench = report().data("bench")
    rows = [row | {"measured": not row["k"]} for row in bench["rows"]]
    found = lines(bench=Part("bench", "done", 1.0, {**bench, "rows": rows}))
    assert found["bench"][0] == "best K 4, 1.80× faster (1.70–1.90) predicted"


def test_a_bench_of_one_prompt_has_no_figure():
    bench = report().data("bench")
    rows = [row | {"speedup_low": 0.0, "speedup_high": 1e304} for row in bench["rows"]]
    assert lines(bench=Part("bench", "done", 1.0, {**bench, "rows": rows}))["bench"][0] == "best K 4, cannot tell yet"


def test_what_was_left_out_is_named_with_its_reason():
    found = lines()
    assert found["target, at 8192 tokens"] == ("–", "caches of 8192 tokens do not fit this machine's memory")
    assert found["left out"] == ("1", "rows at 8192")


def test_a_wrong_architecture_is_named():
    wrong = {"name": "gemma3", "status": "wrong", "proves": "rollback logic, float32", "detail": ""}
    changed = replace(report(), parts=[Part("self-test", "done", 1.0, {"outcomes": [wrong]})])
    found = {name: (value, note) for name, value, note in summary(changed)}
    assert found["self-test"][0] == "1 wrong" and found["self-test"][1].endswith("; wrong: gemma3")


def test_a_part_without_data_is_a_dash_with_its_reason():
    changed = replace(report(), parts=[Part("bench", "failed", 1.0, {}, "RuntimeError: x")])
    assert ("bench", "–", "RuntimeError: x") in summary(changed)


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
    parts = [Part("machine", "done", 0.0, MACHINE | {"state": calm | state}), Part("machine after", "done", 0.0, calm)]
    assert [found for found, _ in cautions(replace(report(), parts=parts))] == [word]
    quiet = [Part("machine", "done", 0.0, MACHINE | {"state": calm}), Part("machine after", "done", 0.0, calm)]
    assert cautions(replace(report(), parts=quiet)) == []


def test_an_empty_report_still_has_a_summary():
    assert summary(replace(report(), parts=[]))[0][0] == "pair"


def test_milliseconds_have_three_digits():
    found = [milliseconds(seconds) for seconds in (0.00123, 0.0123, 0.123, None)]
    assert found == ["1.23 ms", "12.3 ms", "123 ms", "–"]
