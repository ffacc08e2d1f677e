import pytest

from specdec_cli.core.events import Finish, Round
from specdec_cli.core.gain import Gain
from specdec_cli.core.stats import ChatStats, Stats, ratio


def a_round(draft, accepted, emitted=None):
    emitted = accepted + 1 if emitted is None else emitted
    return Round(0, "model", tuple(range(draft)), accepted, 9, tuple(range(emitted)), 0.1, 0.2)


@pytest.fixture
def stats():
    """The first token, then 4 of 4, 2 of 4, 0 of 4, and 1 of 1 at the end of the budget."""
    stats = Stats()
    for draft, accepted in ((0, 0), (4, 4), (4, 2), (4, 0), (1, 1)):
        stats.fold(a_round(draft, accepted))
    return stats


def test_rates_follow_their_definitions(stats):
    assert (stats.draft_n, stats.draft_n_accepted, stats.rejected_n) == (13, 7, 2)
    assert stats.draft_acceptance_rate == 7 / 13
    assert stats.judged_acceptance_rate == 7 / 9
    assert stats.emitted_tokens == 12
    assert stats.mean_acceptance_length == 12 / 5


def test_positions_count_only_rounds_that_drafted_them(stats):
    assert stats.acceptance_per_position == [3 / 4, 2 / 3, 1 / 3, 1 / 3]
    assert stats.accepted_histogram == [1, 1, 1, 0, 1]


def test_a_pace_is_of_the_tokens_after_the_first_round_however_many_that_emitted():
    stats, chat = Stats(decode_seconds=2.0), ChatStats()
    for draft, accepted in ((3, 3), (4, 4), (0, 0)):
        stats.fold(a_round(draft, accepted))
    assert (stats.timed_tokens, stats.tokens_per_second) == (6, 3.0)
    chat.fold(Finish("length", "", (), "", stats.to_dict()))
    chat.fold(Finish("length", "", (), "", stats.to_dict()))
    assert (chat.timed_tokens, chat.tokens_per_second) == (12, 3.0)


def test_a_plain_step_is_what_the_gain_says_of_the_time_a_token_took(stats):
    stats.decode_seconds, stats.measuring_seconds, stats.gain = 2.0, 0.2, Gain(1.5, 1.2, 1.9, 0.35, 0.3, 0.4)
    values = stats.to_dict()
    assert values["plain_step_seconds"] == pytest.approx(1.5 * 2.2 / 11)
    assert Gain.of_stats(values) == stats.gain


def test_zero_denominators_give_none():
    values = Stats().to_dict()
    for name in ("draft_acceptance_rate", "judged_acceptance_rate", "mean_acceptance_length", "tokens_per_second"):
        assert values[name] is None
    assert all(values[f"estimated_speedup{end}"] is None for end in ("", "_low", "_high"))
    assert values["plain_step_seconds"] is None and values["break_even_acceptance_rate"] is None
    assert Gain.of_stats(values) is None
    assert ratio(1, 0) is None
