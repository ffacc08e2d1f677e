"""The interval on what drafting gained holds the truth, on machines that are busy by the second."""

import json
import random
from math import exp, log
from statistics import fmean, median

import pytest

from fakes.busy import a_round, simulated
from specdec_cli.core.gain import FEWEST_ROUNDS
from specdec_cli.core.speedup import BELIEVED_SECONDS, EARLIER, CostMemo, Meter, t_interval, t_quantile

KNOWN = CostMemo({("model", 4): (log(2.0),) * EARLIER})
# Two-sided, from printed tables of Student's t (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
TABLE = {
    0.90: {1: 6.314, 2: 2.920, 3: 2.353, 5: 2.015, 10: 1.812, 30: 1.697, 100: 1.660},
    0.95: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 20: 2.086, 60: 2.000, 100: 1.984},
    0.99: {1: 63.657, 2: 9.925, 3: 5.841, 5: 4.032, 10: 3.169, 30: 2.750, 100: 2.626},
}


@pytest.mark.slow
def test_the_interval_holds_the_truth_in_nine_of_ten_replies_and_one_that_ignores_disturbance_does_not():
    """N = 200, bound 90 %; at a true coverage of 95 % fewer have odds of 1 in 400. The seeds are fixed.

    Of 600 such replies, the meter before this one, of a normal and inverse-gamma prior, showed 594 figures, 95.8 % of
    them right, at a median half-width of 15.6 %, and told nothing in 27 %; this one 587, 96.8 %, 16.1 %, 33 %.
    """
    found = list(simulated(200))
    shown = [(gain, truth, share) for gain, _, truth, share in found if gain is not None]
    width = median((gain.high - gain.low) / 2 / gain.speedup for gain, *_ in shown)
    untold = fmean(gain is None or gain.verdict == "cannot tell yet" for gain, *_ in found)
    right = fmean(gain.low <= truth <= gain.high for gain, truth, _ in shown)
    control = fmean(ignorant.low <= truth <= ignorant.high for _, ignorant, truth, _ in found)
    print(f"{right:.1%} of {len(shown)} right, median half-width {width:.1%}, not told {untold:.1%}, {control:.1%}")
    assert right >= 0.90 and width < 0.17 and untold < 0.36
    assert fmean(gain.break_even_low <= share <= gain.break_even_high for gain, _, share in shown) >= 0.90
    assert control < 0.90


def reply_of(seconds, steps=(), memo=None, k=4, accepted=2):
    """A meter that has seen drafted rounds of so many seconds, and then plain steps."""
    meter = Meter(memo)
    for one in seconds:
        meter.fold(a_round(k, accepted, one))
    meter.add_plain_steps(steps)
    return meter


def test_nothing_is_claimed_of_few_rounds_of_few_drafts_or_without_a_plain_step():
    assert reply_of([0.03] * (FEWEST_ROUNDS - 1), memo=KNOWN).gain() is None
    assert reply_of([0.03] * FEWEST_ROUNDS, memo=KNOWN).gain() is not None
    assert reply_of([0.03] * 400).gain() is None
    rare = Meter(KNOWN)
    for index in range(400):
        rare.fold(a_round(4 if index % 25 == 0 else 0, 0, 0.02))
    assert rare.gain() is None


def test_of_plain_rounds_in_a_row_the_first_and_the_last_are_no_measure():
    meter = Meter()
    for seconds in (9.0, 1.0, 1.0, 0.1):
        meter.fold(a_round(0, 0, seconds))
    for _ in range(16):
        meter.fold(a_round(4, 4, 2.0))
    assert meter.gain().speedup == pytest.approx((4 + 16 * 5) / (4 + 16 * 2.0), rel=1e-3)


def test_a_machine_too_busy_to_tell_gets_no_figure():
    luck = random.Random(5)
    meter = reply_of([0.05 * exp(luck.gauss(0, 1.2)) for _ in range(40)], [0.02])
    assert meter.shows and meter.gain() is None


def test_rounds_of_several_k_are_compared_each_at_its_own_cost():
    """K follows the text: the plain steps happen beside dear rounds, and most rounds are cheap."""
    meter = Meter()
    for index in range(60):
        meter.fold(a_round(8, 4, 4.0) if index % 6 == 5 else a_round(2, 1, 1.5))
        if index in (23, 47):
            meter.add_plain_steps([1.0])
    assert meter.gain().speedup == pytest.approx((10 * 5 + 50 * 2) / (10 * 4.0 + 50 * 1.5), rel=0.03)


def test_what_earlier_replies_found_gives_a_figure_before_anything_is_measured():
    gain = reply_of([0.04] * FEWEST_ROUNDS, memo=KNOWN, accepted=3).gain()
    assert gain.speedup == pytest.approx(2.0) and gain.low > 1.6


def test_a_disturbed_step_moves_a_known_cost_little_and_later_figures_come_back():
    """A step of ten beside one that was undisturbed: the one in the middle counts."""
    disturbed = reply_of([2.0] * 30, [1.0], KNOWN)
    disturbed.add_plain_steps([10.0])
    memo = disturbed.learn()
    assert memo.costs["model", 4] == pytest.approx((log(2.0),) * EARLIER)
    assert reply_of([2.0] * 30, [1.0], memo).gain() is not None


def test_costs_survive_the_trip_through_the_file_and_not_for_ever():
    memo = CostMemo({("model", 4): (0.5, 0.6), ("ngram", 8): (0.9,)})
    saved = json.loads(json.dumps(memo.to_dict(1000.0)))
    assert CostMemo.from_dict(saved, 2000.0) == memo
    assert CostMemo.from_dict(saved, 1001.0 + BELIEVED_SECONDS) == CostMemo.from_dict(saved, 999.0) == CostMemo()


@pytest.mark.parametrize("confidence", TABLE)
def test_quantiles_are_the_tabulated_ones(confidence):
    for freedom, value in TABLE[confidence].items():
        assert round(t_quantile(freedom, confidence), 3) == pytest.approx(value, abs=0.00051)


def test_an_interval_by_hand():
    """1, 2, 3, 6: mean 3, s = 2.1602, t(3) = 3.1824, so 3 ± 3.4374."""
    assert t_interval([[1, 2, 3, 6]]) == (3, pytest.approx(3.43741, abs=1e-4))
