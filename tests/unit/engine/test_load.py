"""Checkpoint to network: the weights are mlx-lm's own, and what cannot be loaded says why before they are read."""

import json
from pathlib import Path

import mlx.core as mx
import mlx_lm.models
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_model, quantize_model, save_model

from conformance.architectures import architectures, installed
from fakes.models import TINY, tiny_folder
from specdec_cli.core.errors import NotAvailable
from specdec_cli.engine import load as load_module
from specdec_cli.engine.load import READS_FP8, Adapted, blank_network, empty_model, load, load_network
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint

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


def test_fp8_is_read_where_mlx_lm_makes_numbers_of_it(tmp_path):
    """ministral3's code multiplies the codes with the scales: noise, at one byte a weight where two are loaded."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}

    def is_read(name, **more):
        config = architectures()[name].config | {"quantization_config": fp8 | more}
        try:
            return bool(blank_network(Checkpoint("m", tmp_path, config, ())))
        except NotAvailable as error:
            assert error.message == "m is packed by fp8, which mlx-lm does not read"
            return False

    own = {name for name, one in architectures().items() if "quantization" in one.config}
    read = {name for name in {*architectures()} & {*installed()} - own if is_read(name)}
    sources = Path(mlx_lm.models.__path__[0])
    assert {path.stem for path in sources.glob("*.py") if "from_fp8(weight," in path.read_text()} < read
    assert read == READS_FP8
    assert is_read("ministral3", scale_fmt="ue8m0", weight_block_size=[32, 32])
    for dtype in (mx.uint8, mx.bfloat16):  # a configuration may still say so of what was unpacked since
        mx.save_safetensors(str(tmp_path / "model.safetensors"), {"a": mx.ones((2, 2), dtype)})
        assert is_read("ministral3") == (dtype == mx.bfloat16)
