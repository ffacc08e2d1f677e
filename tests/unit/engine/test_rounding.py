"""Readings of a known text: what differs between two of them is arithmetic alone."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.generate import wired_limit

from fakes.models import TINY, tiny_network
from specdec_cli.engine.baseline import KnownText, Position, mlx_lm_leads, plain_steps, row_leads
from specdec_cli.engine.model import CachedModel
from specdec_cli.measure.rounding import difference

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


def test_a_cache_that_forgets_to_roll_back_moves_the_gaps_of_all_readings_but_the_whole_one(monkeypatch):
    net = network(mx.float32)
    text, model = text_of(net, 20), CachedModel(net)
    # The caches say that they took tokens back and keep them.
    monkeypatch.setattr("mlx_lm.models.cache.KVCache.trim", lambda cache, tokens: tokens)
    off = {"whole": 0.0, "repeated": 0.0, "rejected": 0.0}
    for one in row_leads(model, text, 5):
        off[one.reading] = max(off[one.reading], abs(difference(one.leads, text.positions[one.position].leads)))
    assert off["whole"] < 1e-4 < 0.1 < min(off["repeated"], off["rejected"])
