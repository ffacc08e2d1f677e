"""The loop against mlx-lm's own generate_step, in float32."""

import time

import mlx.core as mx
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.models import tiny_network
from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import cut_after_stop
from specdec_cli.engine.sampling.acceptance import greedy

CLOCK = time.perf_counter


class Scripted(Drafter):
    """A drafter that proposes what the test says, right or wrong, of any length."""

    name = "scripted"

    def __init__(self, proposals):
        self._proposals = iter(proposals)

    def propose(self, context, k):
        yield from ()
        tokens = list(next(self._proposals, []))[:k]
        return Draft(mx.array(tokens, dtype=mx.int32), drafter=self.name)


NETWORK = tiny_network(seed=1)
GREEDY = [t for r in baseline(NETWORK, [5, 6], 64, frozenset(), CLOCK) for t in r.emitted]


@settings(max_examples=25)
@given(
    k=st.integers(0, 8),
    max_tokens=st.integers(1, 40),
    # Right for a random number of tokens, then wrong: every acceptance count at every place.
    right=st.lists(st.integers(0, 8), max_size=40),
    stop=st.sampled_from([frozenset(), frozenset({GREEDY[10]}), frozenset({GREEDY[23], GREEDY[0]})]),
)
def test_loop_invariants_hold_for_any_drafter(k, max_tokens, right, stop):
    target = CachedModel(NETWORK, "target")
    context, seen = [5, 6], 0

    class Partly(Scripted):
        def propose(self, context, k):
            yield from ()
            good = next(self._proposals, 0)
            at = len(context) - 2
            guess = [GREEDY[at + i] if i < good else 3 for i in range(k)]
            return Draft(mx.array(guess, dtype=mx.int32), drafter=self.name)

    rounds = decode(target, Drafters(Partly(right), k), greedy(target.vocab_size), context, max_tokens, stop, CLOCK)
    for index, round in enumerate(rounds):
        seen += len(round.emitted)
        assert round.index == index
        assert len(round.draft) <= (k if index else 0)
        assert len(round.emitted) <= round.accepted + 1
        assert len(round.emitted) == round.accepted + 1 or round.emitted[-1] in stop
        assert seen <= max_tokens
    assert target.length == len(context) - 1
    assert context[2:] == cut_after_stop(GREEDY[:max_tokens], stop)


class Watched(list):
    """A context that counts how many of its ids are read at once."""

    def __init__(self, ids):
        super().__init__(ids)
        self.most = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.most = max(self.most, len(found) if isinstance(index, slice) else 1)
        return found


def test_host_work_of_a_round_does_not_grow_with_the_context():
    target, draft = (CachedModel(tiny_network(seed=1, noise=noise), "m") for noise in (0, 0.05))
    context = Watched(range(3, 203))
    drafter = ModelDrafter(draft, target.vocab_size, greedy(target.vocab_size))
    rounds = decode(target, Drafters(drafter, 4), greedy(target.vocab_size), context, 40, frozenset(), CLOCK)
    next(rounds)
    next(rounds)  # both prompts are read
    context.most = 0
    assert len(list(rounds)) > 5
    assert 0 < context.most <= 4 + 1
