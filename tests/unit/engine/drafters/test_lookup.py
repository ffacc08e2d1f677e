"""Drafts without a network: the text itself, what is forced, and what a constraint leaves of a draft."""

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.machine import assumed
from specdec_cli.core.events import Round
from specdec_cli.core.kinds import FORCED, LOOKUP
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter, finished
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.lookup import LookupDrafter
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.engine.planning.costs import Costs
from specdec_cli.engine.planning.history import History
from specdec_cli.engine.planning.policy import Situation, plan
from specdec_cli.engine.planning.rates import MAX_LOOKUP, LookupAcceptance


@pytest.mark.parametrize(
    ("context", "k", "drafted"),
    [
        ([1, 2, 3, 9, 1, 2], 3, [3, 9, 1]),
        ([5, 1, 2, 7, 8, 1, 2, 6, 5, 1, 2], 2, [7, 8]),  # the longest match
        ([1, 2, 7, 1, 2, 8, 1, 2], 1, [8]),  # of equals the later one
        ([1, 2, 3], 4, []),
    ],
)
def test_what_followed_the_longest_match_is_drafted(context, k, drafted):
    assert finished(LookupDrafter().propose(context, k)).tokens.tolist() == drafted


def lookup_k(history, rates):
    """K of a lookup with these rates where there is no network."""
    return plan(history.situation(Situation(MAX_LOOKUP, source=LOOKUP.name, lookup=tuple(rates)))).k


def seen(history, rounds=6):
    """Plain rounds of a second."""
    for index in range(rounds):
        history.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 1.0), queued=index > 0, followed=True)
    return history


def begun(costs):
    history = History(costs, 0)
    history.begin(1000, 100)
    return history


def test_a_lookup_drafts_only_where_its_tokens_cost_less_than_a_plain_step():
    history = begun(Costs({2: 1.9, 9: 8.2}, {1: 0.1}))
    seen(history)
    assert lookup_k(history, [0.5] * MAX_LOOKUP) == 0
    assert lookup_k(history, [0.99] * MAX_LOOKUP) > 0


def test_on_an_unknown_machine_a_lookup_is_at_most_twice_as_long_as_what_was_verified():
    """A pass of 32 rows may take a second; what sixteen take tells first."""
    history, found = seen(begun(assumed(0.1, 0.001))), []
    for index in range(6):
        found.append(k := lookup_k(history, [0.99] * MAX_LOOKUP))
        history.observe(Round(index, "ngram", tuple(range(k)), k, 7, tuple(range(k + 1)), 0.0, 1.0 + 0.001 * k))
    assert found == [2, 4, 8, 16, MAX_LOOKUP, MAX_LOOKUP]


@pytest.mark.parametrize(
    ("drafted", "looked_up", "k"),
    [
        (0.99, [0.5] * 4, 0),  # the model's are nearly always accepted
        (0.01, [0.5] * 4, 4),  # hardly ever
        (0.01, [], 0),
        (0.01, [0.9] * 9, 4),  # never longer than K
        (0.99, [1.0] * 2, 0),  # two certain tokens yield less than four likely ones
    ],
)
def test_under_a_fixed_k_a_lookup_takes_the_round_where_it_should_yield_more(drafted, looked_up, k):
    chosen = plan(Situation(30, k=4, network="model", rate=drafted, source=LOOKUP.name, lookup=tuple(looked_up)))
    assert (chosen.drafter, chosen.k) == ((LOOKUP.name, k) if k else ("model", 4))


PERIOD = [5, 6, 7, 8, 9, 10]


def test_every_token_of_the_answer_tells_what_a_lookup_would_have_been_worth_whoever_drafted_it():
    lookups, context = LookupAcceptance(), PERIOD * 2
    drafter, before = LookupDrafter(rates=lookups), lookups.rates(20, 1)[0]
    for _ in range(40):
        context.append(PERIOD[len(context) % len(PERIOD)])
        drafter.commit(context)
    assert lookups.rates(20, 1)[0] > 0.94 > 0.9 > before
    mistaken, context = LookupAcceptance(), PERIOD * 2
    drafter = LookupDrafter(rates=mistaken)
    for index in range(40):
        # After 5 6 7 comes another token each time.
        context += [5, 6, 7, 100 + index]
        drafter.commit(context)
    assert mistaken.rates(3, 1)[0] < 0.1


# The automaton against a search of every place.


TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def earlier_ends(text, length):
    """Where the last `length` tokens of `text` ended before, by looking everywhere."""
    return [i + length for i in range(len(text) - length) if text[i : i + length] == text[len(text) - length :]]


@given(TEXTS)
def test_the_match_is_the_longest_end_that_occurred_before(text):
    lookup = SuffixAutomaton()
    lookup.follow(text)
    longest = max((n for n in range(1, len(text)) if earlier_ends(text, n)), default=0)
    assert lookup.match.length == longest
    if longest:
        assert lookup.match.start in earlier_ends(text, longest)


@given(TEXTS, st.integers(1, 12))
def test_a_continuation_goes_round_where_the_text_ends(text, k):
    lookup = SuffixAutomaton()
    lookup.follow(text)
    repeated = text[lookup.match.start :] if lookup.match.length else []
    assert lookup.continuation(k) == (repeated * k)[:k]


# Inside a constraint: where drafts end.


class Even:
    """Even tokens are legal; after `forced_at` tokens 8 is forced."""

    def __init__(self, forced=()):
        self._forced = list(forced)

    def forced(self):
        return self._forced

    def legal(self, draft):
        return next((place for place, token in enumerate(draft) if token % 2), len(draft))


class Says(Drafter):
    name = "says"

    def __init__(self, tokens, with_law):
        self._tokens, self._with_law = tokens, with_law

    def propose(self, context, k):
        yield from ()
        law = mx.zeros((len(self._tokens), 10)) if self._with_law else None
        return Draft(mx.array(self._tokens, dtype=mx.int32), law, self.name)


def proposed(tokens, with_law, forced=(), k=6):
    made = Drafters(Says(tokens, with_law), k, constraint=Even(forced))
    made.follow(made.decide(32))
    return made.legal(finished(made.propose([1])))


def test_a_draft_without_a_law_ends_before_its_first_illegal_token():
    assert proposed([2, 4, 5, 6], with_law=False).tokens.tolist() == [2, 4]


@pytest.mark.parametrize("k", [0, 6])
def test_what_is_forced_comes_before_all_others_and_at_k_0_too(k):
    draft = proposed([2], with_law=True, forced=[8, 8, 8], k=k)
    assert (draft.tokens.tolist(), draft.log_q, draft.drafter) == ([8, 8, 8], None, FORCED.name)


def test_at_k_0_nobody_else_drafts():
    assert len(proposed([2, 4], with_law=True, k=0)) == 0
