"""Hidden states on request: mlx-lm's own layers, run one by one, say what they must be. Unasked they cost nothing."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from fakes.models import tiny_network
from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.conformance.networks import tiny_network as tiny
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.model import CachedModel

IDS = list(range(3, 40))
PATHS = ["model.layers.0", "model.norm"]


def independently(network, ids):
    """The outputs of layer 0 and of the last norm, by running mlx-lm's modules by hand over the whole text."""
    hidden = network.model.embed_tokens(mx.array([ids]))
    first = None
    for layer in network.model.layers:
        hidden = layer(hidden, "causal", None)
        first = hidden if first is None else first
    return {"model.layers.0": np.array(first[0]), "model.norm": np.array(network.model.norm(hidden)[0])}


def test_hidden_states_are_those_of_the_modules_chunk_by_chunk_and_row_by_row(monkeypatch):
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 8)
    expected = independently(tiny_network(seed=1), IDS)
    model = CachedModel(tiny_network(seed=1), "m")
    model.network.hidden.expose(PATHS)
    chunks = [chunk.hidden for chunk in model.prefill(IDS[:30])]
    assert len(chunks) == 4
    output = model.outputs(IDS[:30], mx.array(IDS[30:34]))
    for path in PATHS:
        read = np.concatenate([np.array(chunk[path]) for chunk in chunks])
        np.testing.assert_allclose(read, expected[path][:29], atol=2e-5)
        np.testing.assert_allclose(np.array(output.hidden[path]), expected[path][29:34], atol=2e-5)


def test_nothing_is_kept_that_nobody_asked_for():
    model = CachedModel(tiny_network(seed=1), "m")
    kinds = {type(module).__name__ for _, module in model.network.module.named_modules()}
    assert model.outputs(IDS, NO_TOKENS).hidden == {}
    assert not any(getattr(type(m), "_specdec_intercepts", False) for _, m in model.network.module.named_modules())
    model.network.hidden.expose(PATHS)
    assert {type(module).__name__ for _, module in model.network.module.named_modules()} == kinds


@pytest.mark.parametrize("name", ["qwen3_5", "mamba", "lfm2", "gemma3_text"])
def test_a_recurrent_network_that_is_watched_still_rolls_back_exactly(name):
    """Both mechanisms exchange classes, sometimes of the same module."""
    architecture = architectures()[name]
    network = tiny(architecture, 1)
    model = CachedModel(network, name)
    layers = [path for path, module in network.named_modules() if path.rpartition(".")[2] == "0"]
    inner = [path for path, _ in network.named_modules() if path.endswith(("linear_attn", "mixer", "conv"))]
    model.network.hidden.expose([*layers[:1], *inner])
    ids = [3 + i % 60 for i in range(24)]
    model.outputs(ids[:12])
    output = model.outputs(ids[:13], mx.array(ids[13:18]))
    mx.eval(output.logits)
    model.commit(ids[:15], 14)
    after = model.outputs(ids[:15])
    fresh = tiny(architecture, 1)
    expected = fresh(mx.array([ids[:15]]), cache=make_prompt_cache(fresh))[0, -1:]
    np.testing.assert_allclose(np.array(after.logits), np.array(expected), atol=5e-4)
    assert set(after.hidden) == {*layers[:1], *inner}
    assert all(states.shape[0] == 1 for states in after.hidden.values())
