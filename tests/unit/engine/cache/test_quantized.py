"""Quantized caches: the largest groups that fit, and refusals with their reason, before any weight is read."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from conformance.architectures import architectures, tiny_network
from specdec_cli.core.errors import Refused
from specdec_cli.engine.model import CachedModel


def wide(name, head_dim):
    found = architectures()[name]
    return tiny_network(replace(found, config={**found.config, "head_dim": head_dim}), 1)


def test_logits_do_not_depend_on_how_the_text_was_cut_into_passes(monkeypatch):
    """mlx-lm converts after the first chunk, so that its logits do."""
    network, ids = wide("qwen3", 32), [3 + i % 50 for i in range(30)]
    found = []
    for chunk in (7, 512):
        monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda chunk=chunk: chunk)
        model = CachedModel(network, "m", kv_bits=4)
        list(model.prefill(ids))
        found.append(np.array(model.logits(ids, mx.array([], dtype=mx.int32))))
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mamba2", "keeps ArraysCache, which --kv-bits cannot quantize"),
        ("gpt_oss", "Quantized SDPA does not support attention sinks"),
        ("qwen3", "does not run on a KV cache of 8 bits: "),
    ],
)
def test_a_model_that_cannot_run_on_quantized_caches_is_refused_with_the_reason(name, reason):
    network = wide(name, 32) if name == "gpt_oss" else tiny_network(architectures()[name], 1)
    with pytest.raises(Refused, match=reason) as caught:
        CachedModel(network, "m", kv_bits=8)
    assert caught.value.hint == "leave --kv-bits out"
