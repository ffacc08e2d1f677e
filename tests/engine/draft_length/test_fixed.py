"""The same K every round, and where a lookup takes the round."""

import pytest

from specdec_cli.engine.draft_length.adaptive import Fixed
from specdec_cli.events import Round


def judged(length, rounds, k, accepted):
    for index in range(rounds):
        emitted = (*range(accepted), 7)
        length.observe(Round(index, "model", tuple(range(k)), accepted, 7, emitted, 0.1, 1.0))
    return length


@pytest.mark.parametrize(
    ("accepted", "rates", "k"),
    [
        (4, [0.5] * 4, 0),  # the model's are nearly always accepted
        (0, [0.5] * 4, 4),  # hardly ever
        (0, [], 0),
        (0, [0.9] * 9, 4),  # never longer than K
        (4, [1.0] * 2, 0),  # two certain tokens yield less than four likely ones
    ],
)
def test_a_lookup_takes_the_round_where_it_should_yield_more(accepted, rates, k):
    assert judged(Fixed(4), 30, 4, accepted).lookup_k(rates) == k
