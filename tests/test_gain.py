"""Gain: what is said of an estimate and its interval."""

import pytest

from specdec_cli.events import Round, RoundDone, from_dict, to_dict
from specdec_cli.gain import Gain, unknown_words


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Gain(1.4, 1.12, 1.71), "1.40× faster (1.12–1.71)"),
        (Gain(0.83, 0.79, 0.88), "slower, 0.83× (0.79–0.88)"),
        (Gain(1.0, 0.94, 1.07), "no difference (0.94–1.07)"),
        (Gain(1.02, 0.94, 1.11), "cannot tell yet (0.94–1.11)"),
        (Gain(1.1, 0.6, 1.8), "cannot tell yet (0.60–1.80)"),
        (Gain(1.06, 1.0, 1.1), "no difference (1.00–1.10)"),
    ],
)
def test_a_gain_is_said_with_its_interval(gain, said):
    assert gain.sentence == said


def test_a_rounds_gain_survives_the_trip_through_json():
    done = RoundDone(
        Round(3, "model", (1,), 1, 2, (1, 2), 0.1, 0.2), ("a",), "b", "ab", Gain(1.4, 1.1, 1.7, 0.35, 0.3, 0.4)
    )
    assert from_dict(to_dict(done)) == done


def test_a_round_without_a_gain_has_no_such_field():
    assert "gain" not in to_dict(RoundDone(Round(3, "model", (1,), 1, 2, (1, 2), 0.1, 0.2), ("a",), "b", "ab"))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ((0.45, 0.35, 0.6), "pays from ≈ 45 % (35–60)"),
        ((0.45, 0.25, 0.66), ""),
        ((0.9, 0.8, 1.02), ""),
        ((1.3, 1.2, 1.4), ""),
        ((0.45, None, None), ""),
        ((), ""),
    ],
)
def test_a_break_even_is_said_with_its_doubt_or_not_at_all(share, said):
    """The bug: replies to one prompt said "pays from" 33 to 65 %, and one "cannot pay here"."""
    assert Gain(1.4, 1.1, 1.7, *share).pays_from == said


@pytest.mark.parametrize(("rounds", "said"), [(15, "not enough rounds to compare"), (16, "cannot tell yet")])
def test_a_reply_without_a_figure_says_whether_it_was_too_short(rounds, said):
    assert unknown_words(rounds) == said
