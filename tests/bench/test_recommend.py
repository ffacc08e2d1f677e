"""Which K is recommended, and when none is."""

from fakes.bench_estimate import HERE, estimate
from specdec_cli.bench.recommend import recommend


def test_ties_go_to_the_smaller_k_but_not_at_any_price():
    five = [0.30, 0.36, 0.33, 0.29, 0.35, 0.31]
    close = [0.31, 0.35, 0.31, 0.30, 0.34, 0.30]
    worse = [0.10, 0.50, 0.15, 0.40, 0.12, 0.44]
    best, near, noisy = estimate(5, five, five), estimate(3, close, close), estimate(2, worse, worse)
    assert recommend(HERE, [near, best]).k == 3 and recommend(HERE, [near, best]).tied == (5,)
    assert best.lead(noisy).low < 0 < best.lead(noisy).mean
    assert recommend(HERE, [noisy, best]).k == 5


def test_an_interval_that_includes_1_says_don_t_whatever_the_mean():
    wild = [0.9, -0.3, 0.5, -0.2, 0.6]
    advice = recommend(HERE, [estimate(3, wild, wild)])
    assert advice.answer == "don't" and advice.speedup.mean > 1.2 and advice.speedup.contains(1.0)
