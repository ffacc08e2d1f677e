"""What a race found, in words."""

from __future__ import annotations

import math

import pytest

from specdec_cli.audit.divergence import Divergence, Token
from specdec_cli.race.events import Measured, RaceFinish
from specdec_cli.ui.race.frame import lead, ratio, same_text, verdict


@pytest.mark.parametrize(
    ("speedup", "low", "high", "words"),
    [
        (1.62, 1.55, 1.7, "1.62× faster (1.55–1.70)"),
        (0.83, 0.79, 0.88, "slower, 0.83× (0.79–0.88)"),
        (1.02, 0.95, 1.09, "no difference (0.95–1.09)"),
        (1.3, 0.9, 1.9, "cannot tell yet (0.90–1.90)"),
        (2.0, None, None, "not enough rounds to compare"),
    ],
)
def test_a_ratio_comes_with_its_interval_and_no_more_than_it_shows(speedup, low, high, words):
    assert ratio(Measured(100, 2.0, 1.0, speedup, low, high)) == words


@pytest.mark.parametrize(
    ("found", "words"),
    [(1.62, "drafted 1.62× ahead"), (0.5, "plain 2.00× ahead"), (1.01, "neck and neck"), (None, "off they go")],
)
def test_the_lead_names_who_is_ahead(found, words):
    assert lead(found) == words


def test_a_near_tie_is_named_with_both_tokens_and_its_gap():
    found = Divergence(56, Token(13, " b\x1b"), Token(12, " a"), 0.0123, 0.031)
    finish = RaceFinish("done", (60, 60), (60, 20), None, found)
    assert same_text(finish) == "a near-tie: token 57 is ␣a (12), in plain decoding ␣b␛ (13), gap 0.012 ≤ 0.031"
    assert finish.near_tie


def test_a_difference_that_no_rounding_makes_is_named_as_one():
    far = Divergence(3, Token(13, "b"), Token(12, "a"), 5.0, 0.031)
    ended = Divergence(3, Token(13, "b"), None, math.inf, 0.0)
    words = [same_text(RaceFinish("done", (9, 9), (9, 3), None, found)) for found in (far, ended)]
    assert words[0].startswith("more than a near-tie: token 4") and "gap 5 > 0.031" in words[0]
    assert words[1] == "the texts differ: token 4 is nothing, in plain decoding b (13), and no rounding does that"


def test_the_verdict_says_times_and_passes():
    finish = RaceFinish("done", (100, 100), (100, 41), Measured(100, 1.96, 1.21, 1.62, 1.55, 1.7))
    assert verdict(finish) == [
        "same text ✓",
        "1.62× faster (1.55–1.70): 1.21 s instead of 1.96 s",
        "41 target passes for 100 tokens, against 100",
    ]


def test_a_ratio_of_the_common_part_says_so():
    finish = RaceFinish("interrupted", (40, 60), (40, 20), Measured(40, 1.0, 0.5, 2.0, 1.8, 2.2))
    assert verdict(finish)[1].endswith("instead of 1.00 s for the first 40 tokens")
