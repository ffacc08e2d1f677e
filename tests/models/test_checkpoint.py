"""Bad folders: each says what is wrong with both values, before any weight is read."""

import json

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from fakes.models import TINY, tiny_folder
from specdec_cli.engine.load import load, load_network, require_runnable
from specdec_cli.errors import NotAvailable, Refused
from specdec_cli.models.checkpoint import read_checkpoint


@pytest.fixture
def folder(tmp_path):
    return tiny_folder(tmp_path / "model")


def configure(folder, **changes):
    (folder / "config.json").write_text(json.dumps(TINY | changes))
    return folder


def test_a_good_folder_is_read(folder):
    checkpoint = read_checkpoint(folder, "m")
    assert (checkpoint.model_type, checkpoint.context_limit) == ("qwen3", 256)
    assert load(checkpoint).dtype == "float32"


@pytest.mark.parametrize("stored", [mx.float32, mx.float16])
def test_weights_declared_float32_count_as_float32_however_they_are_stored(folder, stored):
    path = folder / "model.safetensors"
    weights = {name: value.astype(stored) for name, value in mx.load(str(path)).items()}
    mx.save_safetensors(str(path), weights)
    checkpoint = read_checkpoint(folder, "m")
    network = load_network(checkpoint)
    assert checkpoint.loaded_bytes == sum(value.nbytes for _, value in tree_flatten(network.parameters()))


def test_a_missing_folder(tmp_path):
    with pytest.raises(NotAvailable, match="no folder"):
        read_checkpoint(tmp_path / "nowhere", "m")


def test_a_folder_without_weights_says_what_it_holds_instead(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(NotAvailable, match=r"no weights for m: .* holds only pytorch_model.bin"):
        read_checkpoint(folder, "m")


def test_an_index_that_names_absent_shards(folder):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(NotAvailable, match="lacks 1 of 2 weight files, first model-00001"):
        read_checkpoint(folder, "m")


@pytest.mark.parametrize("content", ["{", "[1]", b"\xff\xfe"])
def test_a_broken_configuration(folder, content):
    path = folder / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(NotAvailable, match=r"config.json of m"):
        read_checkpoint(folder, "m")


@pytest.mark.parametrize(("key", "value"), [("model_file", "evil.py"), ("auto_map", {"AutoModel": "evil.Model"})])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_repository_code_is_refused_wherever_it_is_named(folder, file, key, value):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(Refused, match=rf"{file} of m asks to run code .*{key}.*evil"):
        read_checkpoint(folder, "m")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"model_type": "qwen3_5_mtp"}, "MTP"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "EAGLE"),
        ({"medusa_num_heads": 4}, "Medusa"),
        ({"model_type": "qwen3_dflash"}, "DFlash"),
        ({"architectures": ["Qwen3DSparkModel"]}, "DSpark"),
        ({"model_type": "gemma4_assistant"}, "assistant"),
        ({"speculators_config": {}}, "speculator"),
    ],
)
def test_sidecar_drafters_are_refused_by_name(folder, change, kind):
    with pytest.raises(Refused, match=rf"drafter of kind {kind}"):
        read_checkpoint(configure(folder, **change), "m")


def test_an_unknown_model_type(folder):
    checkpoint = read_checkpoint(configure(folder, model_type="riddle"), "m")
    with pytest.raises(NotAvailable, match="m is of type riddle"):
        require_runnable(checkpoint)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_weights_are_damaged(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(NotAvailable, match=r"model.safetensors of m is damaged \(\d+ bytes\)"):
        load(read_checkpoint(folder, "m"))


def test_weights_of_another_shape_do_not_load(folder):
    with pytest.raises(NotAvailable, match=r"m \(qwen3\) does not load"):
        load(read_checkpoint(configure(folder, num_hidden_layers=3), "m"))


def test_an_incomplete_configuration_does_not_load(folder):
    config = {key: value for key, value in TINY.items() if key != "hidden_size"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(NotAvailable, match=r"m \(qwen3\) does not load"):
        load(read_checkpoint(folder, "m"))
