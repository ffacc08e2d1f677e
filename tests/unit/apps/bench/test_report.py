"""What a result says: each arm and its K, rows, kinds, costs and entry; its file."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes.bench import HERE, estimate, read_back, sample_result
from specdec_cli.apps.bench import sentences
from specdec_cli.apps.bench.estimate import better, in_trial_order, next_arms, recommend
from specdec_cli.apps.bench.report import Report, cost_curve, make_row, reports
from specdec_cli.apps.bench.result import Condition, Contender, costs, to_dict
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.gain import break_even_acceptance
from specdec_cli.measure.intervals import Interval, interval_over
from specdec_cli.measure.prompts import PromptId


def over(groups):
    """The interval over prompts of these kinds."""
    return interval_over({PromptId(kind, str(at)): v for kind, values in groups.items() for at, v in enumerate(values)})


def remade(result, changes):
    """The result with `changes(sample)` in each of its samples."""
    return replace(result, samples=tuple(replace(one, **changes(one)) for one in result.samples))


def test_auto_and_k_over_the_whole_range_are_tried_first_and_contenders_in_turns():
    assert [one.k for one in in_trial_order([HERE], (*range(9), "auto"))] == ["auto", 2, 4, 1, 3, 6, 8, 5, 7]
    assert [one.k for one in in_trial_order([HERE], (9, 5, 0))] == [9, 5], "as typed, where none is usual"
    lookup = Condition(Contender("ngram"), 0.0)
    both = in_trial_order([HERE, lookup], (2, "auto"))
    assert both == [HERE.arm("auto"), lookup.arm("auto"), HERE.arm(2), lookup.arm(2)]


def test_the_best_comes_first_and_a_beaten_arm_makes_room_for_the_one_nearest_the_leader():
    near = estimate(2, [0.38, 0.43, 0.40, 0.41])
    leader, beaten = estimate(4, [0.40, 0.41, 0.39, 0.43]), estimate("auto", [0.30, 0.31, 0.29, 0.32])
    found = next_arms([beaten, near, leader], [HERE.arm(1), HERE.arm(8), HERE.arm(3)])
    assert [one.k for one in found] == [4, 2, 3, 1, 8]


def test_an_arm_is_dropped_on_four_prompts_and_never_on_three():
    leader, slow = [0.40, 0.41, 0.39, 0.43], [-0.30, -0.31, -0.29, -0.32]
    assert next_arms([estimate(4, leader[:3]), estimate(2, slow[:3])], []) == [HERE.arm(4), HERE.arm(2)]
    assert next_arms([estimate(4, leader), estimate(2, slow)], []) == [HERE.arm(4)]


def test_what_loses_to_plain_decoding_is_dropped_although_it_leads():
    assert next_arms([estimate(4, [-0.30, -0.31, -0.29, -0.32])], []) == []


def test_kinds_weigh_the_same_and_their_differences_are_no_error():
    """Two kinds far apart, each steady: the interval is narrow, and the larger kind does not pull the mean."""
    values = {"code": [1.0, 1.02, 0.98, 1.0, 1.0, 1.0], "chat": [2.0, 2.02]}
    found = over(values)
    assert found.mean == pytest.approx((1.0 + 2.01) / 2)
    assert found.half_width < 0.03 < over({"all": [v for group in values.values() for v in group]}).half_width


WILD = [0.9, -0.3, 0.5, -0.2, 0.6]


def test_ties_go_to_the_smaller_k_but_not_at_any_price():
    five = [0.30, 0.36, 0.33, 0.29, 0.35, 0.31]
    close = [0.31, 0.35, 0.31, 0.30, 0.34, 0.30]
    worse = [0.10, 0.50, 0.15, 0.40, 0.12, 0.44]
    best, near, noisy = estimate(5, five), estimate(3, close), estimate(2, worse)
    assert recommend(HERE, [near, best]).k == 3 and recommend(HERE, [near, best]).tied == (5,)
    assert best.lead(noisy).low < 0 < best.lead(noisy).mean
    assert recommend(HERE, [noisy, best]).k == 5


def test_an_interval_that_includes_1_is_never_called_faster_whatever_the_mean():
    advice = recommend(HERE, [estimate(3, WILD)])
    assert (advice.answer, advice.chosen) == ("don't", 0)
    assert advice.k == 3 and advice.speedup.mean > 1.2 and advice.speedup.low < 1 < advice.speedup.high


def test_a_k_that_only_its_own_interval_calls_faster_is_not_called_so_among_nine():
    """One of nine arms leads by luck more often than one alone."""
    lucky = estimate(3, [0.30, 0.01, 0.20, 0.08, 0.16])
    others = [estimate(k, [0.05, -0.05, 0.02, -0.02, 0.0]) for k in (1, 2, 4, 5, 6, 7, 8, 9)]
    assert recommend(HERE, [lucky]).answer == "use"
    assert recommend(HERE, [lucky, *others]).answer == "don't"


def test_auto_is_the_safest_where_nothing_is_proven_and_it_is_no_loss():
    advice = recommend(HERE, [estimate(3, WILD), estimate("auto", [0.1, -0.1, 0.05])])
    assert (advice.answer, advice.chosen, advice.k) == ("safest", "auto", "auto")
    lost = recommend(HERE, [estimate(3, WILD), estimate("auto", [0.1, -0.1, -0.05])])
    assert (lost.answer, lost.chosen, lost.k) == ("don't", 0, 3)


def test_too_few_prompts_for_an_interval_leave_auto():
    advice = recommend(HERE, [estimate(3, WILD[:2])])
    assert (advice.answer, advice.chosen, advice.speedup) == ("unknown", "auto", None)


def test_of_two_drafts_the_one_that_is_faster_beyond_noise_is_better_than_one_that_is_safe():
    safe, fast = [estimate("auto", WILD)], [estimate(2, [0.3, 0.31, 0.29])]
    found = [(recommend(HERE, one), one) for one in (safe, fast)]
    assert better(found) is found[1][0] and better(found[:1]) is found[0][0]


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=120.0)


@pytest.fixture(scope="module")
def report(result):
    return reports(result)[0]


@pytest.fixture(scope="module")
def few():
    """Interrupted: no K has more than two prompts."""
    return sample_result(cancel_after=20)


# Rows


def test_the_baseline_comes_first_and_every_measured_k_has_a_row(report):
    first, ks = report.rows[0], [row.k for row in report.rows]
    assert (first.k, first.measured, first.speedup.mean, first.speedup.low, first.draft_share) == (0, True, 1, 1, None)
    assert ks == [k for k in report.result.settings.ks if k in ks] and {0, 2, 4, "auto"} <= set(ks)
    assert report.recommendation.k in {row.k for row in report.rows if row.measured}
    assert all(row.ttft_seconds is not None and row.speedup is not None for row in report.rows)
    bare = Report(remade(report.result, lambda _: {"round_draft_seconds": None}), report.condition)
    assert bare.curve is None and all(row.verify_steps is None for row in bare.rows)


def test_every_kind_with_enough_prompts_has_a_best_k_and_one_that_loses_has_0(report):
    """K 1 at 0.95 times plain decoding was called the best."""
    assert report.kinds
    for row in report.kinds:
        assert sum(at.kind == row.kind for at in report.prompts) >= 3
        assert row.speedup.mean > 1 and row.advice == ("" if row.speedup.low > 1 else "within noise")
    (losing,) = reports(sample_result("M1 Pro", kinds={"chat": 0.4, "prose": 0.3}))
    lost = [row for row in losing.kinds if row.k == 0]
    assert losing.recommendation.chosen == 0
    assert lost and all((row.speedup.mean, row.advice) == (1.0, "decode plainly") for row in lost)


def test_rates_are_of_all_rounds_behind_the_first_token(result):
    """Ten tokens in four rounds after the first."""
    one = next(sample for sample in result.samples if sample.arm.k == 3)
    made = replace(one, emitted_tokens=10, target_passes=5, draft_n=10, draft_n_accepted=5, rejected_n=3)
    row = make_row(3, None, [replace(made, draft_seconds=1.0, verify_seconds=3.0)] * 2, None, "")
    assert (row.acceptance_rate, row.judged_rate, row.mean_acceptance_length) == (5 / 10, 5 / 8, 9 / 4)
    assert (row.draft_share, row.measured) == (1 / 4, False)
    assert make_row(3, None, [], None, "").acceptance_rate is None


def test_costs_are_medians_of_ratios_so_that_a_slower_machine_changes_nothing(result):
    plain, drafted = (next(one for one in result.samples if one.arm.k == k) for k in (0, 2))

    def answers(prompt, plain_step, draft, verify):
        """A plain one with steps of so many seconds, and one whose rounds of K 2 took so many."""
        at = {"prompt": PromptId("code", prompt)}
        yield replace(plain, decode_seconds=plain_step * plain.timed_tokens, **at)
        yield replace(drafted, round_draft_seconds=draft, round_verify_seconds=verify, **at)

    steady = [one for at in "abc" for one in answers(at, 0.020, 0.004, 0.030)]
    slowed = [one for at in "def" for one in answers(at, 0.040, 0.008, 0.060)]
    repeated = replace(steady[0], phase="drift", decode_seconds=9.0)
    alone = replace(drafted, prompt=PromptId("code", "z"), round_draft_seconds=9.0)
    found = cost_curve(costs([*steady, *slowed, *answers("g", 0.020, 0.9, 0.9), repeated, alone]))
    assert found.draft == {2: pytest.approx(0.2)} and found.verify == {3: pytest.approx(1.5)}
    assert found.draft_step == pytest.approx(0.1)
    assert found.round(2) == pytest.approx(1.7) and break_even_acceptance(1.35, 1) == pytest.approx(0.35)
    assert cost_curve([]) is None


def test_no_file_has_the_ends_of_an_interval_of_too_few_prompts(few):
    """A file held 1.0142320547350045e+304."""
    found = json.loads(sentences.json_text(few))["report"][0]
    rows = [*found["rows"], *found["kinds"]]
    lacking = [row for row in rows if row["source"] == "too few"]
    assert lacking
    for row in rows:
        interval = row["speedup"] or {"prompts": 0, "low": None, "high": None}
        assert (interval["low"] is None) == (interval["high"] is None) == (interval["prompts"] < 3)
    assert Interval(0.1, -800.0, 800.0, 5).exp().bounds == (None, None)


# How steady the machine was


def test_drift_compares_the_repeated_baseline_with_the_first_of_its_prompt(result):
    first = next(sample for sample in result.samples if sample.arm == HERE.arm(0))
    slower = replace(first, phase="drift", decode_seconds=2 * first.decode_seconds)
    assert replace(result, samples=(first, slower)).drift == pytest.approx(-0.5)
    assert replace(result, samples=(first,)).drift is None


def test_passes_of_several_rows_that_become_dearer_are_told_though_plain_steps_do_not(result):
    """An M5 Max verified four rows in 37 ms and three runs later in 50; one row stayed, and so did every reading."""
    begun = {one.prompt for one in result.samples[: len(result.samples) // 2]}

    def later(verify, plain_step):
        def dearer(one):
            if one.prompt in begun:
                return {}
            if one.arm.k == 0:
                return {"decode_seconds": plain_step * one.decode_seconds}
            return {"round_verify_seconds": one.round_verify_seconds and verify * one.round_verify_seconds}

        return remade(result, dearer)

    assert result.row_drift == pytest.approx(0.0, abs=0.1) and not sentences.drifted(result)
    assert later(1.35, 1.35).row_drift == pytest.approx(result.row_drift, abs=0.05)
    hot = later(1.35, 1.0)
    assert (1 + hot.row_drift) / (1 + result.row_drift) == pytest.approx(1.35, rel=0.07) and sentences.drifted(hot)
    told = sentences.surroundings(hot)
    assert "passes of several rows +" in told and "try --cooldown" in told
    assert "several rows" not in sentences.surroundings(result)
    assert replace(result, samples=result.samples[:8]).row_drift is None


# What is written down


def test_the_entry_says_machine_k_interval_and_versions_and_a_loss_is_k_0(report):
    found, speedup = sentences.entry(report), report.recommendation.speedup
    assert (found["chip"], found["k"], found["temperature"]) == ("Apple M4 Pro", report.recommendation.k, 0.0)
    assert found["low"] < found["speedup"] < found["high"] and found["speedup"] == round(speedup.mean, 3)
    assert (found["date"], found["mlx"], found["mlx-lm"]) == ("2026-01-31", "0.32.0", "0.32.2")
    assert found["prompts"] == speedup.prompts and "python" not in found
    (lost,) = reports(sample_result("M2 Ultra", kinds={"chat": 0.2}))
    assert lost.recommendation.answer == "don't" and sentences.chosen_k(lost) == 0


def test_an_interrupted_bench_and_one_of_too_few_prompts_write_nothing():
    result = sample_result(cancel_after=10)
    for found, message in ((result, "was interrupted"), (replace(result, partial=False), "an interval needs 3")):
        with pytest.raises(SpecdecError, match=message):
            sentences.chosen_k(reports(found)[0])


# The file


def test_what_was_written_reads_back_as_the_same_value_under_fixed_names(result):
    values = to_dict(result)
    assert read_back(json.dumps(values)) == result
    assert {"settings", "environment", "samples", "seconds", "partial", "schema"} < set(values)
