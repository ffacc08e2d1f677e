"""Hidden states on request, the head that reads them, and watched modules. Unasked they cost nothing."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from conformance.architectures import architectures
from conformance.architectures import tiny_network as tiny
from fakes.models import TINY, tiny_network
from specdec_cli.core.errors import Refused
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.hidden import find_output_head
from specdec_cli.engine.model import CachedModel

IDS = list(range(3, 40))


def independently(network, ids):
    """What the output head reads, by running mlx-lm's modules by hand over the whole text."""
    hidden = network.model.embed_tokens(mx.array([ids]))
    for layer in network.model.layers:
        hidden = layer(hidden, "causal", None)
    return np.array(network.model.norm(hidden)[0])


def test_hidden_states_are_those_of_the_modules_chunk_by_chunk_and_row_by_row(device_says):
    device_says(prefill_tokens=8)
    expected = independently(tiny_network(seed=1), IDS)
    model = CachedModel(tiny_network(seed=1), "m")
    kinds = {type(module).__name__ for _, module in model.network.module.named_modules()}
    assert model.outputs(IDS, NO_TOKENS).hidden is None
    model.network.hidden.expose()
    assert {type(module).__name__ for _, module in model.network.module.named_modules()} == kinds
    model.forget()
    read = np.concatenate([np.array(chunk.hidden) for chunk in model.prefill(IDS[:30])])
    np.testing.assert_allclose(read, expected[:29], atol=2e-5)
    output = model.outputs(IDS[:30], mx.array(IDS[30:34]))
    np.testing.assert_allclose(np.array(output.hidden), expected[29:34], atol=2e-5)


@pytest.mark.parametrize("name", ["nemotron_h", "mamba2", "rwkv7", "qwen", "openelm"])
def test_the_embedding_is_found_by_what_it_is(name):
    """It was looked for by one name, and Medusa heads, which read no token, were refused without it."""
    head = find_output_head(tiny(architectures()[name], 1), name)
    assert head.embed(mx.array([3, 4])).shape == (2, head.hidden_size)


@pytest.mark.parametrize("name", ["gemma4", "gemma4_text", "gemma2"])
def test_capped_scores_are_the_logits_where_the_network_caps_them(name):
    model = CachedModel(tiny(architectures()[name], 1), name)
    module = next(part for part in model.network.module.modules() if "final_logit_softcapping" in vars(part))
    module.final_logit_softcapping = 0.5
    model.network.hidden.expose()
    output, head = model.outputs(IDS[:6]), model.network.hidden.output_head
    assert head.cap == 0.5 and float(mx.abs(output.logits).max()) > 0.4
    np.testing.assert_allclose(np.array(head.logits(output.hidden)), np.array(output.logits), atol=1e-4)
    assert head.scored_by(head.module).cap is None


class Mixed(nn.Module):
    """Logits of two heads: no single head's output are the logits."""

    def __init__(self, network):
        super().__init__()
        self.inner, self.other = network, nn.Embedding(TINY["vocab_size"], TINY["vocab_size"])

    @property
    def layers(self):
        return self.inner.layers

    def __call__(self, inputs, cache=None):
        return self.inner(inputs, cache=cache) * (1 + mx.abs(self.other(inputs)))


def test_a_network_whose_logits_are_more_than_its_heads_output_is_refused_by_name():
    with pytest.raises(Refused, match="odd: its logits are not the output of one head"):
        find_output_head(Mixed(tiny_qwen := tiny_network(seed=1)), "odd")
    assert not any("_specdec_handler_0" in vars(module) for _, module in tiny_qwen.named_modules())
