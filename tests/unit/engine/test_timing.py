"""Costs of passes and rounds, on a device that takes a given time."""

from itertools import count
from time import perf_counter

import numpy as np

from fakes.models import tiny_network
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.timing import plain_step_seconds


def test_plain_steps_are_timed_each_and_leave_the_memo_where_it_was():
    model, ids = CachedModel(tiny_network(seed=1), "m"), [3, 4, 5, 6]
    before = np.array(model.logits(ids, NO_TOKENS))
    ticks = count(0, 32)
    found = plain_step_seconds(model, greedy(model.vocab_size), ids, 4, lambda: float(next(ticks)))
    assert found == [8.0] * 4
    assert model.length == len(ids) - 1
    np.testing.assert_allclose(np.array(model.logits(ids, NO_TOKENS)), before, atol=2e-4)


def test_plain_steps_amid_a_reply_change_none_of_its_tokens():
    """Under `block` each position is judged with noise of its own, so a step that is taken back leaves no trace."""

    def said(measuring):
        target, draft = CachedModel(tiny_network(seed=1), "t"), CachedModel(tiny_network(seed=2), "d")
        rule = make_rule("block", Sampler(Sampling(1.0, repetition_penalty=1.2), 7, [3, 4], target.vocab_size))
        context = [3, 4]
        drafters = Drafters(ModelDrafter(draft, target.vocab_size, rule), 3)
        for round in decode(target, drafters, rule, context, 16, frozenset(), perf_counter):
            if measuring and round.draft:
                plain_step_seconds(target, rule, context, 2, perf_counter)
        return context

    assert said(measuring=True) == said(measuring=False)
