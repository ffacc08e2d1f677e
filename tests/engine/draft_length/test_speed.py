"""The machine's speed follows what rounds agree on: a trend of nine, the first five of a reply, and nothing else."""

import pytest

from specdec_cli.engine.draft_length.speed import Speed


def followed(surprises, speed=None):
    speed = speed or Speed()
    for surprise in surprises:
        speed.follow(surprise)
    return speed.log


def settling():
    speed = Speed()
    speed.begin()
    return speed


def test_nine_rounds_whose_median_is_slower_move_it_by_their_median():
    assert followed([0.3, 0.0, 0.3, 0.0, 0.3, 0.0, 0.3, 0.3, 0.3]) == pytest.approx(0.3)
    assert followed([0.3] * 8) == 0.0


def test_what_is_within_8_percent_is_noise():
    assert followed([0.07] * 30) == 0.0


def test_rounds_of_a_load_that_has_ended_do_not_move_it():
    """The median of nine is still slow, and the last three are not."""
    assert followed([0.5] * 6 + [-0.4] * 3) == 0.0


def test_it_returns_when_the_load_ends():
    speed = Speed()
    followed([0.5] * 9, speed)
    assert followed([-0.5] * 9, speed) == pytest.approx(0.0)


def test_the_first_five_rounds_of_a_reply_move_it_where_they_agree():
    assert followed([-0.6, -0.7, -0.65, -0.6, -0.7], settling()) == pytest.approx(-0.65)


def test_one_spike_among_them_does_not_hide_it():
    assert followed([-0.6, 0.5, -0.6, -0.6, -0.6], settling()) == pytest.approx(-0.6)


def test_a_cold_start_does_not_move_it():
    """Three slow rounds, then usual ones: the five disagree, and are forgotten."""
    assert followed([0.7, 0.7, 0.7, 0.0, -0.01] + [0.0] * 8, settling()) == 0.0


def test_kinds_that_were_seen_twice_tell_a_change_between_replies_only():
    speed = settling()
    assert speed.sure_rounds == 2
    followed([0.0] * 5, speed)
    assert speed.sure_rounds == 8


def test_a_new_reply_forgets_the_surprises_of_the_one_before():
    speed = Speed()
    followed([0.5] * 8, speed)
    speed.begin()
    assert followed([0.5] + [0.0] * 4, speed) == 0.0
