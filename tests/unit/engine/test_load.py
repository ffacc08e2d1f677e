"""Checkpoint to network: the weights are mlx-lm's own, and what cannot be loaded says why before they are read."""

import json
from pathlib import Path

import mlx.core as mx
import mlx_lm.models
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from conformance.architectures import architectures, installed
from fakes.models import TINY, tiny_folder
from specdec_cli.core.errors import NotAvailable
from specdec_cli.engine import load as load_module
from specdec_cli.engine.load import READS_FP8, blank_network, empty_model, load, load_network
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


def test_code_that_does_not_run_on_this_device_is_not_available(folder, monkeypatch):
    def metal_only(*arguments, **options):
        raise RuntimeError("no Metal back-end")

    monkeypatch.setattr(load_module, "CachedModel", metal_only)
    with pytest.raises(NotAvailable, match="does not run on this device: no Metal back-end"):
        empty_model(checkpoint(folder))


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
