"""Drafts inside a constraint: where they end, and why exactly there."""

import mlx.core as mx
import pytest

from specdec_cli.core.kinds import FORCED
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter, finished
from specdec_cli.engine.drafters.drafters import Drafters


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
