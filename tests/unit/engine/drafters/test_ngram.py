"""Prompt lookup: the longest match is drafted on, and the words stay the target's own."""

import time

import pytest

from fakes.models import tiny_network
from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.lookup import LookupDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy


def proposal(context, k):
    return finished(LookupDrafter().propose(context, k)).tokens.tolist()


def test_the_longest_match_wins_and_a_later_occurrence_counts():
    assert proposal([1, 2, 3, 9, 1, 2], 3) == [3, 9, 1]
    assert proposal([5, 1, 2, 7, 8, 1, 2, 6, 5, 1, 2], 2) == [7, 8]
    assert proposal([1, 2, 7, 1, 2, 8, 1, 2], 1) == [8]
    assert proposal([1, 2, 3], 4) == []


@pytest.mark.parametrize("k", [1, 4, 8])
def test_text_that_repeats_is_drafted_from_itself_and_stays_the_targets_own(k):
    network, prompt = tiny_network(seed=1), list(range(3, 23)) * 3
    clock = time.perf_counter
    expected = [t for r in baseline(network, prompt, 60, frozenset(), clock) for t in r.emitted]
    context = list(prompt)
    target = CachedModel(network, "target")
    rounds = list(
        decode(target, Drafters(None, k, LookupDrafter()), greedy(target.vocab_size), context, 60, frozenset(), clock)
    )
    assert context == prompt + expected
    assert sum(len(round.draft) for round in rounds) > 0
