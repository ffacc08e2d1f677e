"""What the head reads, of every architecture: found without names, and proven by giving the head something else."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from fakes.models import TINY
from fakes.models import tiny_network as tiny_qwen3
from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.conformance.networks import tiny_network
from specdec_cli.engine.hidden import LAST, READ
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.output_head import find_output_head
from specdec_cli.errors import Refused

# Two are listed with the reason that they are not built, and two run on Metal alone.
BUILT = [a for name, a in architectures().items() if not a.metal_only and name not in ("olmo", "phi3small")]
# The head reads more than one norm of the last layer's output, and why.
MORE_BETWEEN = {
    "deepseek_v41": "several streams are joined after the last layer",
    "gemma3n": "several streams are averaged after the last layer",
    "gptj": "the network has no list of layers",
    "iquestloopcoder": "the last norm reads a mixture of two loops",
    "kimi_k3": "residuals of blocks are mixed after the last layer",
    "minicpm": "the normed state is divided before the head",
    "minicpm3": "the normed state is divided before the head",
    "nanochat": "the norm is a function, not a module",
    "phixtral": "the norm belongs to the head",
    "talkie": "the norm is a function, and the head's weights are scaled",
}
SOME = ("qwen3_5", "qwen3_next", "gemma2", "gemma4", "cohere", "minicpm", "recurrent_gemma", "muse_glimmer", "llama4")
EACH = [pytest.param(a, marks=() if a.name in SOME else pytest.mark.full, id=a.name) for a in BUILT]
IDS = [5, 9, 31, 7, 12]


def close(found, expected):
    found, expected = (np.array(values.astype(mx.float32)) for values in (found, expected))
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("architecture", EACH)
def test_scores_of_what_the_head_reads_are_the_logits_in_every_architecture(architecture):
    """READ of 122 architectures; LAST and its norm of all but the ten above. Another text than the proof's."""
    model = CachedModel(tiny_network(architecture, 1), architecture.name)
    model.network.hidden.expose([READ])
    output_head = model.network.hidden.output_head
    between = output_head.norm is None
    assert between == (architecture.name in MORE_BETWEEN)
    assert output_head.embedding is not None
    if between:
        with pytest.raises(Refused, match="reads more than a norm"):
            model.network.hidden.expose([LAST])
    else:
        model.network.hidden.expose([LAST])
    output = model.outputs(IDS)
    close(output_head.logits(output.hidden[READ]), output.logits)
    if not between:
        norm = dict(model.network.module.named_modules())[output_head.norm]
        close(output_head.logits(norm(output.hidden[LAST][None])[0]), output.logits)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_heads_are_read_as_they_are(bits, tied):
    network = tiny_qwen3(TINY | {"tie_word_embeddings": tied}, seed=1)
    nn.quantize(network, 32, bits)
    model = CachedModel(network, "q")
    model.network.hidden.expose([READ])
    output_head = model.network.hidden.output_head
    assert (output_head.head, output_head.method) == (
        ("model.embed_tokens", "as_linear") if tied else ("lm_head", "__call__")
    )
    output = model.outputs(IDS)
    close(output_head.logits(output.hidden[READ]), output.logits)
    np.testing.assert_array_equal(
        np.array(output_head.embed(mx.array(IDS))), np.array(network.model.embed_tokens(mx.array(IDS)))
    )


class Mixed(nn.Module):
    """Logits of two heads: no single head's input decides them."""

    def __init__(self, network):
        super().__init__()
        self.inner, self.other = network, nn.Embedding(TINY["vocab_size"], TINY["vocab_size"])

    @property
    def layers(self):
        return self.inner.layers

    def __call__(self, inputs, cache=None):
        return self.inner(inputs, cache=cache) * (1 + mx.abs(self.other(inputs)))


def test_a_network_whose_logits_follow_from_more_than_its_head_is_refused_by_name():
    with pytest.raises(Refused, match=r"odd: its logits \[259\] do not follow from one head's input alone") as error:
        find_output_head(Mixed(tiny_qwen3(seed=1)), "odd")
    assert "inner.lm_head" in error.value.message


def test_the_search_leaves_no_trace():
    network = tiny_qwen3(seed=1)
    kinds = [type(module) for _, module in network.named_modules()]
    find_output_head(network, "m")
    assert [type(module) for _, module in network.named_modules()] == kinds
    assert not any("_specdec_handler_0" in vars(module) for _, module in network.named_modules())
