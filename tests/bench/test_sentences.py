"""The bench's sentences, each with its figures."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench import sentences
from specdec_cli.bench.intervals import Interval
from specdec_cli.bench.report import Report
from specdec_cli.machine import MachineState


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=120.0)


def report(result):
    return Report(result, result.conditions[0])


def test_a_recommendation_names_k_speed_up_interval_and_prompts(result):
    assert sentences.conclusion(report(result)) == "K 2: 1.75× (1.70 to 1.80), measured on 23 prompts"


def test_a_draft_that_loses_is_advised_against_with_its_best_k():
    found = report(sample_result("M2 Ultra", kinds={"chat": 0.2}))
    assert sentences.conclusion(found).startswith("don't use this draft for this: the best, K ")


def test_too_few_prompts_give_no_recommendation_and_a_longer_bench_to_type():
    result = sample_result(budget_seconds=8.0)
    assert sentences.conclusion(report(result)).startswith("no recommendation: fewer than 3 prompts were confirmed")
    assert sentences.command(result, report(result)) == "specdec bench -p qwen3-8b --time-budget 1m"


def test_the_reason_is_what_one_more_token_adds_and_costs(result):
    reason = sentences.reason(report(result))
    assert reason.startswith(
        "one more draft token adds 0.44 to the 2.31 tokens of a round (+19\u00a0%) and 0.40 to its"
    )


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
