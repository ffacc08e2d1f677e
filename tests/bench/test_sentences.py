"""The sentences of a bench, each with its figures, and what --write puts into models.toml."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.bench_estimate import estimate
from fakes.bench_result import sample_result
from specdec_cli.bench import sentences
from specdec_cli.bench.estimate import Interval
from specdec_cli.bench.report import Report
from specdec_cli.bench.sentences import chosen_k, entry, require_pair
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.machine import MachineState


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=120.0)


def report(result):
    return Report(result, result.conditions[0])


def saying(result, **arms):
    """The sentence on log speed-ups by K ("k2": [...])."""
    found = report(result)
    every = [estimate(int(k[1:]) if k[1:].isdigit() else k, logs) for k, logs in arms.items()]
    vars(found)["estimates"] = every
    return sentences.conclusion(found), sentences.command(result, found)


def test_a_recommendation_names_k_speed_up_interval_and_prompts(result):
    assert saying(result, k2=[0.30, 0.36, 0.33, 0.35], k3=[0.31, 0.35, 0.31, 0.36])[0] == (
        "K 2: 1.40× faster (1.34–1.46), on 4 prompts; K 3 is no faster beyond noise"
    )


def test_where_nothing_is_faster_beyond_noise_auto_is_named_if_it_is_no_loss_else_plain_decoding(result):
    """The bug: "no recommendation", and a command that takes six minutes."""
    told, command = saying(result, k1=[0.2, -0.1, 0.15], auto=[0.1, -0.1, 0.05])
    assert told.startswith("K auto: cannot tell yet (0.79–1.32), on 3 prompts; no K is faster beyond noise, and auto")
    assert command == "specdec run -p qwen3-8b --drafter model -k auto 'your prompt'"
    told, command = saying(result, k1=[0.2, -0.1, 0.15], auto=[-0.1, -0.1, 0.05])
    assert told.startswith("plain decoding (K 0): no K is faster beyond noise; the best, K 1: cannot tell yet (0.73–")
    assert command == "specdec run -p qwen3-8b -k 0 'your prompt'"


def test_a_draft_that_loses_is_said_to_be_slower(result):
    told, _ = saying(result, k1=[-0.2, -0.21, -0.19], k2=[-0.3, -0.31, -0.29])
    assert told == (
        "plain decoding (K 0): no K is faster beyond noise; the best, K 1: slower, 0.82× (0.80–0.84), on 3 prompts"
    )


def test_too_few_prompts_name_the_safest_choice_and_never_a_longer_bench():
    result = sample_result(cancel_after=10)
    told, command = sentences.conclusion(report(result)), sentences.command(result, report(result))
    assert told == "K auto, the safest choice: 1 prompt measured, and an interval needs 3"
    assert command == "specdec run -p qwen3-8b --drafter model -k auto 'your prompt'"


def test_the_command_has_the_recommended_k_and_the_temperature():
    result = sample_result(budget_seconds=120.0, temperatures=(0.7,))
    found = report(result)
    k = found.recommendation.k
    assert (
        sentences.command(result, found) == f"specdec run -p qwen3-8b --drafter model -k {k} --temp 0.7 'your prompt'"
    )


def test_an_unnamed_pair_is_named_by_its_models(result):
    unnamed = replace(result, settings=replace(result.settings, named=False))
    assert sentences.command(unnamed, report(unnamed)) == (
        "specdec run --target mlx-community/Qwen3-8B-4bit --draft mlx-community/Qwen3-0.6B-4bit"
        " --drafter model -k 2 'your prompt'"
    )


def test_a_state_that_changed_is_told_twice_and_an_unknown_one_never(result):
    environment = replace(result.environment, before=MachineState("mains"), after=MachineState("battery"))
    told = sentences.surroundings(replace(result, environment=environment))
    assert "on mains then battery" in told and "low-power" not in told and "load" not in told


def test_rows_that_became_dearer_are_told_with_what_helps_and_steady_ones_never(result):
    hot = [replace(one, verify_seconds=1.35 * one.verify_seconds) for one in result.costs[len(result.costs) // 2 :]]
    heated = replace(result, costs=(*result.costs[: len(result.costs) // 2], *hot))
    assert "passes of several rows +3" in sentences.surroundings(heated) and sentences.drifted(heated)
    assert "try --cooldown" in sentences.surroundings(heated)
    assert "several rows" not in sentences.surroundings(result) and not sentences.drifted(result)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(1.424, 1.38, 1.46, 8), "1.42 ±0.04"),
        (Interval(1.4, -9.0, 9.0, 3), "1.40 ±?"),
        (Interval(1.4, 1.0, 2.0, 2), "1.40"),
    ],
)
def test_a_spread_is_shown_only_of_enough_prompts_and_bounded(interval, text):
    assert sentences.spread(interval, 2) == text


@pytest.mark.parametrize("what", [(False, 0, 1, 1), (True, 1, 1, 1), (True, 0, 2, 1), (True, 0, 1, 2)])
def test_nothing_is_written_where_it_has_no_one_place(what):
    require_pair(True, 0, 1, 1)
    with pytest.raises(UsageError, match="--write"):
        require_pair(*what)


@pytest.fixture(scope="module")
def whole():
    return sample_result()


def test_the_entry_says_machine_k_interval_and_versions(whole):
    report = Report(whole, whole.conditions[0])
    found, speedup = entry(whole, report), report.recommendation.speedup
    assert (found["chip"], found["k"], found["temperature"]) == ("Apple M4 Pro", report.recommendation.k, 0.0)
    assert found["low"] < found["speedup"] < found["high"] and found["speedup"] == round(speedup.mean, 3)
    assert (found["date"], found["mlx"], found["mlx-lm"]) == ("2026-01-31", "0.32.0", "0.32.2")
    assert found["prompts"] == speedup.prompts and "python" not in found


def test_a_loss_is_written_as_k_0():
    result = sample_result("M2 Ultra", kinds={"chat": 0.2})
    report = Report(result, result.conditions[0])
    assert report.recommendation.answer == "don't" and chosen_k(result, report) == 0


def test_an_interrupted_bench_writes_nothing(whole):
    report = Report(whole, whole.conditions[0])
    with pytest.raises(SpecdecError, match="the bench was interrupted"):
        chosen_k(replace(whole, partial=True), report)


def test_a_bench_of_too_few_prompts_writes_nothing():
    result = replace(sample_result(cancel_after=10), partial=False)
    report = Report(result, result.conditions[0])
    with pytest.raises(SpecdecError, match="an interval needs 3") as found:
        chosen_k(result, report)
    assert found.value.hint == "give it more prompts: --prompts FILE"
