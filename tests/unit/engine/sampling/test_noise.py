"""Law: noise is a function of seed, stream and position, has its stated distribution, and reaches into the tails."""

import math

import mlx.core as mx
import numpy as np
import pytest

from fakes.dispatches import CAN_FUSE
from specdec_cli.engine import device
from specdec_cli.engine.sampling.noise import Noise, attempt_seed

needs_fusing = pytest.mark.skipif(not CAN_FUSE, reason="mlx cannot fuse here: a CPU without a C++ compiler")


def test_noise_is_a_function_of_seed_stream_and_position_alone():
    draws = {
        (seed, stream, position): tuple(Noise(seed).uniform(stream, position, 4).tolist())
        for seed in (-1, 0, 1, 2, 12, 2**70)
        for stream in ("target", "draft", "accept", "residual")
        for position in (0, 1, 2, 3, 23, 2**40)
    }
    assert len(set(draws.values())) == len(draws)
    for (seed, stream, position), values in draws.items():
        assert tuple(Noise(seed).uniform(stream, position, 4).tolist()) == values
    rows = Noise(1).gumbels("target", 5, 3, 7)
    assert mx.array_equal(rows[2], Noise(1).gumbel("target", 7, 7))


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=[pytest.mark.slow, needs_fusing])])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_several_positions_drawn_at_once_have_the_noise_each_has_alone(monkeypatch, fused, width):
    """Bit for bit: a plain round draws one position, the judge of a draft those that the draft did not need."""
    monkeypatch.setattr(device, "fuses", lambda: fused)
    together = np.array(Noise(3).gumbels("target", 10, 6, width))
    alone = [np.array(Noise(3).gumbel("target", 10 + i, width)) for i in range(6)]
    np.testing.assert_array_equal(together, np.stack(alone))


def kolmogorov(samples, cdf):
    """Largest distance between the samples' empirical law and `cdf`."""
    samples = np.sort(samples)
    exact = cdf(samples)
    steps = np.arange(len(samples) + 1) / len(samples)
    return max(np.abs(exact - steps[1:]).max(), np.abs(exact - steps[:-1]).max())


@pytest.mark.parametrize("across", [False, True])
def test_noise_has_its_law_within_a_position_and_across_positions(across):
    """N = 200 000 in one position, 2 000 over positions; bound sqrt(ln(2 / 1e-6) / 2N) by Dvoretzky-Kiefer-Wolfowitz
    (Massart 1990), false alarm < 1e-6 each. Control: the same draws, scaled by 0.9, are refused.
    """
    noise, n = Noise(11), 2000 if across else 200_000

    def drawn(make):
        rows = [make("accept", i, 1) for i in range(n)] if across else [make("draft", 0, n)]
        return np.array(mx.concatenate(rows), np.float64)

    bound = math.sqrt(math.log(2e6) / (2 * n))
    uniform = drawn(noise.uniform)
    assert kolmogorov(uniform, lambda v: v) < bound
    assert kolmogorov(drawn(noise.gumbel), lambda v: np.exp(-np.exp(-v))) < bound
    assert kolmogorov(0.9 * uniform, lambda v: v) > bound


def test_each_further_answer_of_a_seed_has_a_seed_of_its_own():
    seeds = [attempt_seed(7, attempt) for attempt in range(6)]
    noise = {tuple(Noise(one).uniform("target", 0, 4).tolist()) for one in seeds}
    assert seeds[0] == 7 and len(set(seeds)) == 6 == len(noise)
