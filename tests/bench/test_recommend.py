"""Which K is recommended, and which words it earns."""

from fakes.bench_estimate import HERE, estimate
from specdec_cli.bench.estimate import better, recommend

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
    assert advice.k == 3 and advice.speedup.mean > 1.2 and advice.speedup.contains(1.0)


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
