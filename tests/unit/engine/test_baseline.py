"""The oracle itself: mlx-lm's steps against logits of the whole text at once, and readings of a known text."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.generate import wired_limit

from fakes.models import TINY, tiny_network
from specdec_cli.engine import device
from specdec_cli.engine.baseline import (
    KnownText,
    Position,
    baseline,
    mlx_lm_leads,
    plain_steps,
    row_leads,
)
from specdec_cli.engine.model import CachedModel

PROMPT = [7, 11, 42, 9]


def best(tokens, logits):
    return logits


class Constant(nn.Module):
    """A network whose logits are always the same, in bfloat16."""

    def __init__(self, logits):
        super().__init__()
        self.layers = []
        self._row = mx.array(logits).astype(mx.bfloat16)

    def __call__(self, ids, cache=None):
        return mx.broadcast_to(self._row, (*ids.shape, self._row.size))


def test_logits_that_mlx_lm_merges_in_half_precision_are_told_apart():
    """3 and 3.015625 less 7.625 are both -4.625 in bfloat16: mlx-lm's own argmax takes the first."""
    network = Constant([3.0, 3.015625, *[0.0] * 2000])
    (own,) = baseline(network, PROMPT, 1, frozenset(), lambda: 0.0)
    (step,) = plain_steps(network, PROMPT, 1, frozenset(), best)
    assert (own.next, step.token) == (0, 1)
    assert step.lead(0) == 0.015625


def test_a_step_ahead_that_a_stop_token_leaves_is_waited_for(monkeypatch):
    """Over several ranks its sums, in a stream of their own, mixed with those of the next job, and garbled it."""
    chosen, waited = [], []
    monkeypatch.setattr(device, "wait", waited.append)

    def agreed(token):
        chosen.append(token)
        return token

    steps = list(plain_steps(Constant([3.0, 4.0, 0.0]), PROMPT, 9, frozenset({1}), best, agreed))
    assert (len(steps), len(chosen)) == (1, 2)
    assert waited[-1] is chosen[-1]


# What differs between two readings is arithmetic alone.


KNOWN = [5, 9, 130, 77]


def network(dtype, bits=None):
    made = tiny_network(TINY, seed=1)
    made.set_dtype(dtype)
    if bits:
        nn.quantize(made, 32, bits)
    return made


def text_of(net, tokens=12):
    steps = plain_steps(net, KNOWN, tokens, frozenset(), lambda _, logits: logits)
    return KnownText(KNOWN, [Position.of(step) for step in steps])


@pytest.mark.parametrize(("dtype", "bits", "rows"), [(mx.bfloat16, None, 5), (mx.bfloat16, 4, 2)])
def test_ours_and_mlx_lm_s_passes_of_as_many_rows_agree_to_the_bit(rows, dtype, bits):
    net = network(dtype, bits)
    model, text = CachedModel(net), text_of(net, 20)
    theirs = {(one.position, one.row): one.leads for one in mlx_lm_leads(model, text, rows)}
    assert {position for position, _ in theirs} == set(range(20)) and {row for _, row in theirs} == set(range(rows))
    for one in row_leads(model, text, rows):
        assert one.leads == theirs[one.position, one.row]


def test_mlx_lms_own_passes_wire_nothing(monkeypatch):
    """`stream_generate` and its kin would wire all that fits (`wired_limit`, mlx_lm/generate.py); negative control."""
    asked = []
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 1 << 30})
    monkeypatch.setattr(mx, "set_wired_limit", asked.append)
    net = network(mx.float32)
    text = text_of(net)
    assert list(mlx_lm_leads(CachedModel(net), text, 3)) and not asked
    with wired_limit(net, []):
        pass
    assert asked == [1 << 30]
