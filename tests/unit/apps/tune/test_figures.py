"""What is predicted, and what is kept."""

from __future__ import annotations

import random

import pytest

from specdec_cli.apps.tune.figures import Measured, judge
from specdec_cli.core.stats import Stats


def stats(accepted, rejected, emitted, passes):
    return Stats(draft_n_accepted=accepted, rejected_n=rejected, emitted_tokens=emitted, rounds=passes)


def measured(documents, k=3, near=0, plain=0.010, draft=0.003, verify=0.012):
    return Measured(k, documents, near, plain, draft, verify)


def simulated(odds, seed=0, documents=40, k=3, passes=30):
    """A document has odds of its own; `odds` moves all of them alike."""
    draw, found = random.Random(seed), {}
    for name in range(documents):
        own, accepted, rejected = odds + random.Random(name).uniform(-0.2, 0.2), 0, 0
        for _ in range(passes):
            n = next((at for at in range(k) if draw.random() > own), k)
            accepted, rejected = accepted + n, rejected + (n < k)
        found[f"{name}"] = stats(accepted, rejected, accepted + passes, passes)
    return measured(found, k)


def test_the_figures_of_a_prediction_by_hand():
    found = measured({"a": stats(6, 2, 10, 4), "b": stats(2, 2, 6, 4)}, near=3)
    assert found.acceptance.mean == pytest.approx((0.75 + 0.5) / 2) and found.acceptance.prompts == 2
    assert (found.tokens_a_pass, found.near_share) == (2.0, 0.75)
    assert found.steps == pytest.approx(1.5)  # 3 ms of draft and 12 ms of target, over plain steps of 10 ms
    assert (found.speedup, found.perfect) == (pytest.approx(2 / 1.5), pytest.approx(4 / 1.5))
    assert measured(found.stats, draft=0.002, verify=0.007).steps == 1.0  # measured on a busy machine


def test_nothing_is_to_be_gained_where_even_a_perfect_draft_would_not_pay_or_this_one_is_perfect():
    some = {"a": stats(6, 2, 10, 4)}
    assert measured(some).nothing_to_gain == ""
    slow = measured(some, draft=0.030).nothing_to_gain
    assert slow == "even a draft that is always right would not pay: 0.95× plain decoding"
    assert measured({"a": stats(30, 0, 40, 10)}).nothing_to_gain.startswith("4.00 tokens a pass leave less than 2 %")


def test_a_clear_gain_is_kept_and_a_loss_or_no_change_is_not():
    before = simulated(0.6)
    gain, loss, same = (judge(before, simulated(odds, seed=1)) for odds in (0.75, 0.45, 0.6))
    assert gain.refusal == "" and gain.acceptance.low > 0 and gain.passes.mean > 1.02
    assert loss.refusal == "acceptance fell on documents it never saw" and loss.passes.high < 1
    assert same.refusal == "acceptance did not rise beyond noise on documents it never saw"


def test_a_gain_that_is_certain_and_small_is_not_kept():
    before = measured({f"{n}": stats(500 + n, 500, 1000 + n, 500) for n in range(20)})
    after = measured({f"{n}": stats(504 + n, 496, 1004 + n, 500) for n in range(20)})
    assert judge(before, after).refusal == "0.4 % faster than before, and less than 2 % faster is not noticed"


def test_chance_alone_is_kept_at_most_once_in_twenty():
    """60 trainings that change nothing: a lower bound of 95 % is above 0 by chance in 2.5 %; more than 6: 1 in 1000."""
    before = simulated(0.6)
    kept = [seed for seed in range(1, 61) if judge(before, simulated(0.6, seed)).acceptance.low > 0]
    assert len(kept) <= 6
