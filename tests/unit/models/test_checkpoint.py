"""Bad folders: each says what is wrong with both values, before any weight is read."""

import json

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from fakes.models import TINY, tiny_folder
from specdec_cli.core.errors import NotAvailable, Refused
from specdec_cli.engine.load import empty_model, load, load_network
from specdec_cli.models.checkpoint import read_checkpoint, stop_ids


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


@pytest.mark.parametrize(("asked", "read", "limit"), [(None, None, 256), (33, 33, None), (1024, (256 - 44) // 2, None)])
def test_a_draft_reads_what_fits_its_own_context_and_bounds_nobody_elses(folder, asked, read, limit):
    found = read_checkpoint(folder, "m").as_draft(asked)
    assert (found.recent, found.context_limit) == (read, limit)
    assert (load(found).recent, load(found).context_limit) == (read, limit)


@pytest.mark.parametrize("stored", [mx.float32, mx.float16])
def test_weights_declared_float32_count_as_float32_however_they_are_stored(folder, stored):
    path = folder / "model.safetensors"
    weights = {name: value.astype(stored) for name, value in mx.load(str(path)).items()}
    mx.save_safetensors(str(path), weights)
    checkpoint = read_checkpoint(folder, "m")
    network = load_network(checkpoint)
    assert checkpoint.loaded_bytes == sum(value.nbytes for _, value in tree_flatten(network.parameters()))


def test_a_folder_without_weights_says_what_it_holds_instead(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(NotAvailable, match=r"no weights for m: .* holds only pytorch_model.bin"):
        read_checkpoint(folder, "m")


def test_an_index_that_names_absent_shards(folder):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(NotAvailable, match="lacks 1 of 2 weight files, first model-00001"):
        read_checkpoint(folder, "m")


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [("config.json", "model_file", "evil.py"), ("tokenizer_config.json", "model_file", "evil.py")],
)
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
        empty_model(checkpoint)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_truncated_weights_are_damaged(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(NotAvailable, match=r"model.safetensors of m is damaged \(\d+ bytes\)"):
        load(read_checkpoint(folder, "m"))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("content", ["[" * 100_000, "null"])
def test_every_damaged_json_file_is_named(folder, file, content):
    """A config.json nested 100,000 deep ended in exit 1 and `RecursionError`."""
    (folder / file).write_text(content)
    with pytest.raises(NotAvailable, match=rf"{file} of m is not valid JSON: "):
        read_checkpoint(folder, "m")


ILL_TYPED = {
    "model_type": (5, "names no model_type"),
    "architectures": ("Qwen", 'architectures is "Qwen", but a list is expected'),
    "text_config": ("x", 'text_config is "x", but an object is expected'),
    "quantization": ([4], r"quantization is \[4\], but an object is expected"),
}


@pytest.mark.parametrize("key", ILL_TYPED)
def test_an_ill_typed_configuration_is_named_with_key_and_value(folder, key):
    value, reason = ILL_TYPED[key]
    with pytest.raises(NotAvailable, match=reason):
        read_checkpoint(configure(folder, **{key: value}), "m")


@pytest.mark.parametrize("value", ["abc", [2, "x"], True])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_stop_tokens_that_are_no_ids_are_named_with_file_and_value(folder, file, value):
    (folder / file).write_text(json.dumps((TINY if file == "config.json" else {}) | {"eos_token_id": value}))
    with pytest.raises(NotAvailable, match=f"{file} of m is wrong: eos_token_id is"):
        stop_ids(folder, "m", json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize("change", [{"hidden_size": "abc"}, {"num_attention_heads": 0}, {"rope_theta": "x"}])
def test_a_configuration_that_mlx_lm_cannot_use_is_refused_before_any_weight(folder, change):
    with pytest.raises(NotAvailable, match=r"m \(qwen3\) does not (load|run)"):
        empty_model(read_checkpoint(configure(folder, **change), "m"))
