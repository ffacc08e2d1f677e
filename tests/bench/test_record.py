"""What --write puts into models.toml, and when it refuses to."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import Report
from specdec_cli.bench.sentences import chosen_k, entry, require_pair
from specdec_cli.errors import SpecdecError, UsageError


@pytest.mark.parametrize("what", [(False, 0, 1, 1), (True, 1, 1, 1), (True, 0, 2, 1), (True, 0, 1, 2)])
def test_nothing_is_written_where_it_has_no_one_place(what):
    require_pair(True, 0, 1, 1)
    with pytest.raises(UsageError, match="--write"):
        require_pair(*what)


@pytest.fixture(scope="module")
def result():
    return sample_result()


def test_the_entry_says_machine_k_interval_and_versions(result):
    report = Report(result, result.conditions[0])
    found, speedup = entry(result, report), report.recommendation.speedup
    assert (found["chip"], found["k"], found["temperature"]) == ("Apple M4 Pro", report.recommendation.k, 0.0)
    assert found["low"] < found["speedup"] < found["high"] and found["speedup"] == round(speedup.mean, 3)
    assert (found["date"], found["mlx"], found["mlx-lm"]) == ("2026-01-31", "0.32.0", "0.32.2")
    assert found["prompts"] == speedup.prompts and "python" not in found


def test_a_loss_is_written_as_k_0():
    result = sample_result("M2 Ultra", kinds={"chat": 0.2})
    report = Report(result, result.conditions[0])
    assert report.recommendation.answer == "don't" and chosen_k(result, report) == 0


def test_an_interrupted_bench_writes_nothing(result):
    report = Report(result, result.conditions[0])
    with pytest.raises(SpecdecError, match="the bench was interrupted"):
        chosen_k(replace(result, partial=True), report)


def test_a_bench_of_too_few_prompts_writes_nothing():
    result = replace(sample_result(cancel_after=10), partial=False)
    report = Report(result, result.conditions[0])
    with pytest.raises(SpecdecError, match="an interval needs 3") as found:
        chosen_k(result, report)
    assert found.value.hint == "give it more prompts: --prompts FILE"
