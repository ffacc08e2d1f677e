import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.acceptance import greedy
from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft_length import Fixed
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.ngram import SIZES, NgramDrafter
from support import tiny_network


def proposal(context, k):
    drafter = NgramDrafter()
    list(drafter.prefill(context))
    return drafter.propose(context, k).tokens.tolist()


def test_the_longest_match_wins_and_its_latest_occurrence_counts():
    assert proposal([1, 2, 3, 9, 1, 2], 3) == [3, 9, 1]
    assert proposal([5, 1, 2, 7, 8, 1, 2, 6, 5, 1, 2], 2) == [7, 8]
    assert proposal([1, 2, 7, 1, 2, 8, 1, 2], 1) == [8]
    assert proposal([1, 2, 3], 4) == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 8))
def test_every_proposal_is_what_followed_the_longest_repeated_end(context, k):
    """Against a plain search through the whole context."""
    expected = []
    for n in SIZES:
        ends = [i + n for i in range(len(context) - n) if context[i : i + n] == context[-n:]]
        if len(context) >= n and ends:
            expected = context[ends[-1] : ends[-1] + k]
            break
    assert proposal(context, k) == expected


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.data())
def test_indexing_step_by_step_equals_indexing_at_once(context, data):
    cuts = sorted(data.draw(st.lists(st.integers(1, len(context)), max_size=4)))
    drafter = NgramDrafter()
    list(drafter.prefill(context[: (cuts or [1])[0]]))
    for cut in [*cuts, len(context)]:
        drafter.commit(context[:cut])
    assert drafter.propose(context, 4).tokens.tolist() == proposal(context, 4)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_text_that_repeats_is_drafted_from_itself_and_stays_the_targets_own(k):
    network, prompt = tiny_network(seed=1), list(range(3, 23)) * 3
    clock = time.perf_counter
    expected = [t for r in baseline(network, prompt, 60, frozenset(), clock) for t in r.emitted]
    context = list(prompt)
    target = CachedModel(network, "target")
    rounds = list(decode(target, NgramDrafter(), greedy(target.width), Fixed(k), context, 60, frozenset(), clock))
    assert context == prompt + expected
    assert sum(len(round.draft) for round in rounds) > 0
