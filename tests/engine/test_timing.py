"""Costs of passes and rounds, on a device that takes a given time."""

from itertools import count
from time import perf_counter

import mlx.core as mx
import numpy as np
import pytest

from fakes.device import FakeDevice, TextModel
from fakes.models import tiny_network
from specdec_cli.engine.conformance.suite import tiny_network as tiny_of
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.draft_length.adaptive import Fixed
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.load import architectures
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.timing import plain_step_seconds, row_costs


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
        drafter = ModelDrafter(draft, target.vocab_size, rule)
        for round in decode(target, drafter, rule, Fixed(3), context, 40, frozenset(), perf_counter):
            if measuring and round.draft:
                plain_step_seconds(target, rule, context, 2, perf_counter)
        return context

    assert said(measuring=True) == said(measuring=False)


STEP, ROW, BUILD = 1.0, 0.2, 0.01


class Built(TextModel):
    """A model whose graph takes time on the host."""

    def forget(self):
        self.length = 0

    def ids(self, tokens):
        return mx.array(list(tokens))

    def prefill(self, context):
        while self.length < len(context) - 1:
            output = super().forward(mx.zeros(len(context) - 1 - self.length))
            self.device.wait(output.logits)
            yield output

    def extend(self, tokens):
        self.device.spend(BUILD)
        return super().extend(tokens)


def measured(monkeypatch, buffers, rows=(1, 4, 8)):
    fake = FakeDevice().install(monkeypatch)
    model = Built(fake, [3, 1, 4, 1, 5, 9], lambda n: STEP + ROW * (n - 1), buffers)
    return row_costs(model, 20, rows, 3, fake.clock)


def test_building_queueing_and_the_whole_pass_are_told_apart(monkeypatch):
    """33 command buffers: the host is stopped until ten are left, so most of the pass is spent in the queueing."""
    for cost in measured(monkeypatch, 33):
        whole = STEP + ROW * (cost.rows - 1)
        assert cost.build_seconds == pytest.approx(BUILD)
        assert cost.total_seconds == pytest.approx(BUILD + whole)
        assert cost.queue_seconds == pytest.approx(whole * 23 / 33)


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "mamba2"])
def test_every_pass_starts_at_the_same_context_whatever_the_caches(monkeypatch, name):
    model = CachedModel(tiny_of(architectures()[name], 1), "m")
    lengths = []

    def extend(self, tokens, real=CachedModel.extend):
        lengths.append(self.length)
        return real(self, tokens)

    monkeypatch.setattr(CachedModel, "extend", extend)
    ticks = count()
    assert len(row_costs(model, 40, (1, 8, 32), 2, lambda: float(next(ticks)))) == 3
    assert set(lengths) == {40} and model.length == 0


@pytest.mark.parametrize(("done", "kept"), [(2, []), (5, [1, 1]), (6, [1, 1, 1]), (7, [2, 1, 1])])
def test_a_cancelled_measurement_keeps_the_turns_it_has(done, kept):
    """The first turn compiles kernels and is not kept; three row counts are a turn."""
    model = CachedModel(tiny_network(seed=1), "m")
    timed, ticks = [], count()

    def clock():
        timed.append(None)
        return float(next(ticks))

    costs = row_costs(model, 8, (1, 2, 3), 5, clock, lambda: len(timed) >= 4 * done)
    assert [cost.passes for cost in costs] == kept
