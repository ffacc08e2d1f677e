"""The text itself or the model: never a different word, and the cheaper tokens."""

import time

import mlx.core as mx
import pytest

from fakes.models import tiny_network
from fakes.products import spread
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.draft_length.acceptance import MAX_LOOKUP, LookupAcceptance
from specdec_cli.engine.draft_length.adaptive import Adaptive, Fixed
from specdec_cli.engine.draft_length.costs import Costs
from specdec_cli.engine.drafters.auto import AutoDrafter
from specdec_cli.engine.drafters.base import Drafter, Verified
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.events import Round
from specdec_cli.request import MAX_K

NETWORK = tiny_network(seed=1)
REPEATING = list(range(3, 23)) * 3
CLOCK = time.perf_counter


class Always(Fixed):
    """Looks up whatever matches, at any odds."""

    def lookup_k(self, rates):
        return min(len(rates), 3)


class InTurn(Fixed):
    """Lookup and model by turns, whatever they are worth."""

    def __init__(self, k):
        super().__init__(k)
        self._rounds = 0

    def observe(self, round):
        super().observe(round)
        self._rounds += 1

    def lookup_k(self, rates):
        return min(len(rates), 5) if self._rounds % 3 else 0


LENGTHS = {
    "always": lambda: Always(2),
    "in turn": lambda: InTurn(2),
    "fixed": lambda: Fixed(4),
    "auto": lambda: Adaptive(Costs.of_ratio(0.001, 0.001)),
    "no model": lambda: Adaptive(Costs.of_ratio(0.001, 0.001), 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "temperature", "ahead"), spread(LENGTHS, [0.8, 0.0], [False, False, True]))
def test_whoever_drafts_the_words_are_the_targets_own(name, temperature, ahead, monkeypatch):
    monkeypatch.setattr(device, "queues_ahead", lambda: ahead)

    def answer(drafter_of, length=None):
        target, context = CachedModel(NETWORK, "target"), list(REPEATING)
        rule = make_rule("coupled", Sampler(Sampling(temperature), 3, REPEATING, target.vocab_size))
        drafter = drafter_of(rule)
        rounds = list(decode(target, drafter, rule, length or drafter, context, 60, frozenset(), CLOCK))
        return context, rounds

    draft = CachedModel(tiny_network(seed=1, noise=0.05), "draft")
    plain, _ = answer(lambda rule: Drafter(), Fixed(0))
    model = name != "no model"
    said, rounds = answer(
        lambda rule: AutoDrafter(
            LENGTHS[name](), LookupAcceptance(), ModelDrafter(draft, NETWORK.args.vocab_size, rule) if model else None
        )
    )
    assert said == plain
    names = {round.drafter for round in rounds if round.draft}
    assert model or names <= {"ngram"}
    if not temperature:  # only then this text repeats itself
        assert "ngram" in names if name != "auto" else names


def plain(index, seconds=1.0):
    return Round(index, "none", (), 0, 7, (7,), 0.0, seconds)


def test_a_lookup_drafts_only_where_its_tokens_cost_less_than_a_plain_step():
    length = Adaptive(Costs({2: 1.9, 9: 8.2}, {1: 0.1}), 0)
    length.begin(1000, 100)
    assert length.lookup_k([0.99] * MAX_LOOKUP) == 0  # nothing measured yet
    for index in range(6):
        length.observe(plain(index))
    assert length.lookup_k([0.5] * MAX_LOOKUP) == 0
    assert length.lookup_k([0.99] * MAX_LOOKUP) > 0
    assert length.next() == 0  # there is no model


class Proposing(Drafter):
    name = "model"

    def propose(self, context, k):
        return Draft(mx.array([9] * k, dtype=mx.int32), drafter=self.name)


def test_a_model_that_does_better_keeps_the_round():
    length = Adaptive(Costs({2: 1.0, 9: 1.1}, {1: 0.01}))
    length.begin(10_000, 10)
    drafter = AutoDrafter(length, LookupAcceptance(), Proposing())
    text = [5, 6, 7, 1, 5, 6]
    for index in range(80):
        k = drafter.next()
        drafter.ready(text)
        draft = drafter.propose(text, k) if k else None
        tokens = tuple(draft.tokens.tolist()) if draft else ()
        who = draft.drafter if tokens else "none"
        # What the model drafts is accepted, what was looked up is rejected.
        accepted = len(tokens) if who == "model" else 0
        drafter.observe(Round(index, who, tokens, accepted, 7, (*tokens[:accepted], 7), 0.001 * len(tokens), 1.0))
    assert who == "model" and len(tokens) == MAX_K


PERIOD = [5, 6, 7, 8, 9, 10]


def followed(drafter, context, rounds):
    """The drafter sees `rounds` plain rounds that go on with the period."""
    for index in range(rounds):
        context.append(PERIOD[len(context) % len(PERIOD)])
        drafter.commit(Verified(context))
        drafter.observe(plain(index))


def test_every_token_of_the_answer_tells_what_a_lookup_would_have_been_worth_whoever_drafted_it():
    lookups, context = LookupAcceptance(), PERIOD * 2
    drafter = AutoDrafter(Fixed(0), lookups, None)
    before = lookups.rates(20, 1)[0]
    followed(drafter, context, 40)
    assert lookups.rates(20, 1)[0] > 0.95 > before
    mistaken, context = LookupAcceptance(), PERIOD * 2
    drafter = AutoDrafter(Fixed(0), mistaken, None)
    for index in range(40):
        # After 5 6 7 comes another token each time.
        context += [5, 6, 7, 100 + index]
        drafter.commit(Verified(context))
        drafter.observe(plain(index))
    assert mistaken.rates(3, 1)[0] < 0.1


def test_on_an_unknown_machine_a_lookup_is_at_most_twice_as_long_as_what_was_verified():
    """A pass of 32 rows may take a second; what sixteen take tells first."""
    length, found = Adaptive(Costs.of_ratio(0.1, 0.001), 0), []
    length.begin(1000, 10)
    for index in range(6):
        length.observe(plain(index))
    for index in range(6):
        found.append(k := length.lookup_k([0.99] * MAX_LOOKUP))
        length.observe(Round(index, "ngram", tuple(range(k)), k, 7, tuple(range(k + 1)), 0.0, 1.0 + 0.001 * k))
    assert found == [2, 4, 8, 16, MAX_LOOKUP, MAX_LOOKUP]
