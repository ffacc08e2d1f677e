"""Readings of a known text: what differs between two of them is arithmetic alone."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from fakes.models import TINY, tiny_network
from specdec_cli.engine.baseline import PlainStep, plain_steps
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.rounding import KnownText, Position, float32_activations, float32_leads, passes, row_gaps

PROMPT = [5, 9, 130, 77]


def network(dtype, bits=None):
    made = tiny_network(TINY, seed=1)
    made.set_dtype(dtype)
    if bits:
        nn.quantize(made, 32, bits)
    return made


def text_of(net, tokens=12):
    steps = plain_steps(net, PROMPT, tokens, frozenset(), lambda _, logits: logits)
    return KnownText(PROMPT, [Position.of(step) for step in steps])


def test_a_position_holds_the_chosen_token_its_best_rivals_and_its_leads():
    logits = mx.array([0.0, 3.0, 1.0, 2.5, *[-float(i) for i in range(8)]])
    found = Position.of(PlainStep(1, logits, logits))
    assert (found.token, found.rivals[:3], found.leads[:3]) == (1, (3, 2, 0), (0.5, 2.0, 3.0))
    assert len(found.rivals) == 7 and 1 not in found.rivals and found.largest_logit == 7.0


def test_leads_are_of_logits_where_scores_chose_another_token():
    found = Position.of(PlainStep(0, mx.array([1.0, 4.0]), mx.array([9.0, 2.0])))
    assert (found.token, found.rivals, found.leads) == (0, (1,), (-3.0,))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("positions", [1, 4, 31])
def test_every_position_is_read_whole_repeated_at_every_row_it_can_have_and_in_rejected_drafts(positions, rows):
    read = {
        name: [
            (one.start + row, row) for one in passes(positions, rows) if one.reading == name for row in range(one.true)
        ]
        for name in ("whole", "repeated", "rejected")
    }
    everywhere = list(range(positions))
    assert [position for position, _ in read["whole"]] == everywhere
    if rows > 1:
        assert sorted(read["repeated"]) == [(p, row) for p in everywhere for row in range(min(rows, p + 1))]
        assert [position for position, _ in read["rejected"]] == everywhere
    assert all(1 <= one.kept <= one.true <= rows for one in passes(positions, rows))


def test_rejected_drafts_go_wrong_at_each_place_in_turn():
    kept = [one.kept for one in passes(60, 4) if one.reading == "rejected"]
    assert kept[:8] == [4, 1, 4, 2, 4, 3, 4, 1]


@pytest.mark.parametrize("bits", [None, 4])
def test_half_precision_leads_lie_a_rounding_away_from_float32_s(bits):
    net = network(mx.bfloat16, bits)
    text = text_of(net)
    wide = float32_leads(CachedModel(net).network, text)
    # The same weights, widened, but for embeddings, whose rows both readings take as they are stored.
    for part in (*net.model.layers, net.model.norm, net.lm_head):
        part.set_dtype(mx.float32)
    for position, leads, step in zip(text.positions, wide, _forced(net, text), strict=True):
        expected = [float(step.logits[position.token] - step.logits[rival]) for rival in position.rivals]
        assert leads == pytest.approx(expected, abs=1e-4)
    errors = [
        abs(a - b) for p, leads in zip(text.positions, wide, strict=True) for a, b in zip(p.leads, leads, strict=True)
    ]
    assert 0.005 < max(errors) < 1.0


def _forced(net, text):
    def known(tokens, logits):
        at = min(tokens.size - len(text.prompt), len(text.positions) - 1)
        return mx.where(mx.arange(logits.shape[-1]) == text.positions[at].token, 1.0, 0.0)[None]

    return plain_steps(net, text.prompt, len(text.positions), frozenset(), known)


def test_float32_activations_leave_weights_and_the_network_as_they_were():
    net = network(mx.bfloat16)
    before = {name: (value.dtype, type(value)) for name, value in tree_flatten(net.parameters())}
    kinds = [type(module) for _, module in net.named_modules()]
    ids = mx.array([PROMPT])
    with pytest.raises(KeyError), float32_activations(net):
        assert net(ids).dtype == mx.float32
        raise KeyError
    assert net(ids).dtype == mx.bfloat16
    assert [type(module) for _, module in net.named_modules()] == kinds
    assert {name: (value.dtype, type(value)) for name, value in tree_flatten(net.parameters())} == before


def test_a_network_that_narrows_its_activations_has_no_float32_leads():
    class Narrow(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network(mx.bfloat16)
            self.layers = self.inner.layers

        def __call__(self, ids, cache=None):
            return self.inner(ids, cache=cache).astype(mx.bfloat16)

    net = Narrow()
    assert float32_leads(CachedModel(net).network, text_of(net)) == []


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_in_float32_passes_of_several_rows_read_the_gaps_of_single_rows(rows):
    net = network(mx.float32)
    text = text_of(net, 20)
    found = list(row_gaps(CachedModel(net), text, rows))
    assert {one.position for one in found} == set(range(20))
    assert max(abs(one.gap - text.positions[one.position].leads[0]) for one in found) < 1e-4


def test_nothing_is_fed_beyond_the_context(monkeypatch):
    net = network(mx.float32)
    text = text_of(net, 20)
    model, reached = CachedModel(net, context_limit=len(PROMPT) + 20), []
    forward = CachedModel.forward
    monkeypatch.setattr(
        CachedModel, "forward", lambda self, ids: reached.append(self.length + ids.size) or forward(self, ids)
    )
    assert {one.position for one in row_gaps(model, text, 5)} == set(range(20))
    assert max(reached) == model.context_limit
    # Negative control: where the context is longer, wrong tokens follow the text.
    deeper = CachedModel(net, context_limit=100)
    assert len(list(row_gaps(deeper, text, 5))) and max(reached) > model.context_limit


def test_a_cache_that_forgets_to_roll_back_moves_the_gaps_of_all_readings_but_the_whole_one(monkeypatch):
    net = network(mx.float32)
    text, model = text_of(net, 20), CachedModel(net)
    # The caches say that they took tokens back and keep them.
    monkeypatch.setattr("mlx_lm.models.cache.KVCache.trim", lambda cache, tokens: tokens)
    off = {"whole": 0.0, "repeated": 0.0, "rejected": 0.0}
    for one in row_gaps(model, text, 5):
        off[one.reading] = max(off[one.reading], abs(one.gap - text.positions[one.position].leads[0]))
    assert off["whole"] < 1e-4 < 0.1 < min(off["repeated"], off["rejected"])
