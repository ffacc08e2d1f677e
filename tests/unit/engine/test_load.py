"""Checkpoint to network: the weights are mlx-lm's own, and what cannot be loaded says why before they are read."""

import json

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_model, quantize_model, save_model

from fakes.models import TINY, tiny_folder
from specdec_cli.core.errors import NotAvailable
from specdec_cli.engine import load as load_module
from specdec_cli.engine.load import Adapted, empty_model, load, load_network
from specdec_cli.models.checkpoint import read_checkpoint

IDS = mx.array([[3, 4, 5]])


def checkpoint(folder, **config):
    if config:
        (folder / "config.json").write_text(json.dumps(TINY | config))
    return read_checkpoint(folder, "m")


@pytest.fixture
def folder(tmp_path):
    return tiny_folder(tmp_path / "m", seed=1)


def test_the_network_is_the_one_that_mlx_lm_loads(folder):
    theirs, _ = load_model(folder)
    np.testing.assert_array_equal(np.array(load_network(checkpoint(folder))(IDS)), np.array(theirs(IDS)))
    model = load(checkpoint(folder))
    assert (model.name, model.context_limit, model.length) == ("m", 256, 0)


def test_a_declared_float32_is_computed_in_float32_whatever_is_stored(folder):
    halves = {name: value.astype(mx.float16) for name, value in mx.load(str(folder / "model.safetensors")).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), halves)
    dtypes = {value.dtype for _, value in tree_flatten(load_network(checkpoint(folder)).parameters())}
    assert dtypes == {mx.float32}
    stored = checkpoint(folder, dtype="float16")
    assert {value.dtype for _, value in tree_flatten(load_network(stored).parameters())} == {mx.float16}


@pytest.mark.parametrize("kept", [0, 7, 1000])
def test_damaged_weights_are_named_with_their_size(folder, kept):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(NotAvailable, match=rf"model.safetensors of m is damaged \({kept} bytes\)"):
        load_network(checkpoint(folder))


def test_code_that_does_not_run_on_this_device_is_not_available(folder, monkeypatch):
    def metal_only(*arguments, **options):
        raise RuntimeError("no Metal back-end")

    monkeypatch.setattr(load_module, "CachedModel", metal_only)
    with pytest.raises(NotAvailable, match="does not run on this device: no Metal back-end"):
        empty_model(checkpoint(folder))


@pytest.mark.parametrize("packed", [False, True])
def test_an_adapter_is_in_the_matrices_unless_they_are_packed_and_says_what_mlx_lm_says(tmp_path, packed):
    """Control: without it the logits are others."""
    folder, adapter = tiny_folder(tmp_path / "model", seed=1), tmp_path / "adapter"
    if packed:
        network, config = load_model(folder)
        network, config = quantize_model(network, config, group_size=32, bits=4)
        save_model(folder, network)
        (folder / "config.json").write_text(json.dumps(config))
    adapter.mkdir()
    lora = {"rank": 4, "scale": 10.0, "dropout": 0.0}
    linear_to_lora_layers(network := load_model(folder)[0], 2, dict(lora))
    network.update(
        tree_map_with_path(lambda path, x: mx.ones_like(x) / 50 if "lora_" in path else x, network.parameters())
    )
    weights = {name: value for name, value in tree_flatten(network.parameters()) if "lora_" in name}
    mx.save_safetensors(str(adapter / "adapters.safetensors"), weights)
    (adapter / "adapter_config.json").write_text(json.dumps({"num_layers": 2, "lora_parameters": lora}))
    checkpoint, ids = read_checkpoint(folder, "tiny"), mx.array([[5, 6, 7, 8]])
    found = load_network(checkpoint.with_adapter(str(adapter)))
    assert any(isinstance(layer, Adapted) for layer in found.modules()) == packed
    assert np.allclose(found(ids), network(ids), atol=1e-3)
    assert not np.allclose(found(ids), load_network(checkpoint)(ids), atol=1e-1)
