"""Quantized caches are refused with the reason, before any weight is read. What they compute is in tests/laws."""

from dataclasses import replace

import pytest

from conformance.architectures import architectures, tiny_network
from specdec_cli.core.errors import Refused
from specdec_cli.engine.model import CachedModel


def wide(name, head_dim):
    found = architectures()[name]
    return tiny_network(replace(found, config={**found.config, "head_dim": head_dim}), 1)


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
