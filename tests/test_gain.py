"""Gain: what is said of an estimate and its interval."""

import pytest

from specdec_cli.events import Round, RoundDone, from_dict, to_dict
from specdec_cli.gain import Gain


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Gain(1.38, 1.1, 1.7), "≈ 1.4× faster (1.1–1.7)"),
        (Gain(0.82, 0.7, 0.9), "≈ 0.8× as fast (0.7–0.9)"),
        (Gain(1.04, 0.9, 1.1), "about as fast (0.9–1.1)"),
        (Gain(1.22, 0.9, 1.5), "≈ 1.2× as fast (0.9–1.5)"),
        (Gain(1.06, 1.02, 1.1), "≈ 1.1× faster (1.0–1.1)"),
    ],
)
def test_a_gain_is_said_with_its_interval(gain, said):
    assert gain.sentence == said


def test_a_rounds_gain_survives_the_trip_through_json():
    done = RoundDone(Round(3, "model", (1,), 1, 2, (1, 2), 0.1, 0.2), ("a",), "b", "ab", Gain(1.4, 1.1, 1.7, 0.35))
    assert from_dict(to_dict(done)) == done


def test_a_round_without_a_gain_has_no_such_field():
    assert "gain" not in to_dict(RoundDone(Round(3, "model", (1,), 1, 2, (1, 2), 0.1, 0.2), ("a",), "b", "ab"))


@pytest.mark.parametrize(("share", "said"), [(0.346, "pays from 35 %"), (1.3, "could not pay at 100 %"), (None, "")])
def test_a_gain_says_which_acceptance_pays_here(share, said):
    assert Gain(1.4, 1.1, 1.7, share).pays_from == said
