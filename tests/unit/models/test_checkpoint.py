"""Bad folders: each says what is wrong with both values, before any weight is read."""

import json

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from fakes.models import tiny_folder
from specdec_cli.core.errors import NotAvailable, Refused
from specdec_cli.engine.load import empty_model, load, load_network
from specdec_cli.models.checkpoint import read_checkpoint, stop_ids


@pytest.fixture
def folder(tmp_path):
    return tiny_folder(tmp_path / "model")


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


def changed(file, **values):
    def change(folder):
        there = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        (folder / file).write_text(json.dumps(there | values))

    return change


def instead(file, text):
    return lambda folder: (folder / file).write_text(text)


CONFIG, TOKENIZER, INDEX, GENERATION = (
    *("config.json", "tokenizer_config.json", "model.safetensors.index.json", "generation_config.json"),
)
SHARDS = {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}
SIDECARS = {
    "MTP": {"model_type": "qwen3_5_mtp"},
    "EAGLE": {"architectures": ["LlamaForCausalLMEagle3"]},
    "Medusa": {"medusa_num_heads": 4},
    "assistant": {"model_type": "gemma4_assistant"},
    "speculator": {"speculators_config": {}},
}
# What is done to a folder, the kind of its refusal, and what that says.
WRONG = [
    (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        *(NotAvailable, "no weights for m: .* holds only pytorch_model.bin"),
    ),
    (changed(INDEX, weight_map=SHARDS), NotAvailable, "lacks 1 of 2 weight files, first model-00001"),
    *((changed(file, model_file="evil.py"), Refused, f"{file} of m asks to run code .*model_file.*evil")
      for file in (CONFIG, TOKENIZER)),
    *((changed(CONFIG, **values), Refused, f"drafter of kind {kind}") for kind, values in SIDECARS.items()),
    # A config.json nested 100,000 deep ended in exit 1 and `RecursionError`.
    *((instead(file, text), NotAvailable, f"{file} of m is not valid JSON: ")
      for file in (CONFIG, TOKENIZER, INDEX) for text in ("[" * 100_000, "null")),
    (changed(CONFIG, model_type=5), NotAvailable, "names no model_type"),
    (changed(CONFIG, architectures="Qwen"), NotAvailable, 'architectures is "Qwen", but a list is expected'),
    (changed(CONFIG, text_config="x"), NotAvailable, 'text_config is "x", but an object is expected'),
    (changed(CONFIG, quantization=[4]), NotAvailable, r"quantization is \[4\], but an object is expected"),
    *((changed(file, eos_token_id=value), NotAvailable, f"{file} of m is wrong: eos_token_id is")
      for file in (CONFIG, GENERATION) for value in ("abc", [2, "x"], True)),
    *((changed(CONFIG, **values), NotAvailable, r"m \(qwen3\) does not (load|run)")
      for values in ({"hidden_size": "abc"}, {"num_attention_heads": 0}, {"rope_theta": "x"})),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "said"), WRONG, ids=[said[:40] for *_, said in WRONG])
def test_a_wrong_folder_says_what_is_wrong_before_any_weight_is_read(folder, change, kind, said):
    (folder / "model.safetensors").write_bytes(b"not weights")
    change(folder)
    with pytest.raises(kind, match=said) as refused:
        checkpoint = read_checkpoint(folder, "m")
        stop_ids(folder, "m", checkpoint.config)
        empty_model(checkpoint)
    assert "\n" not in refused.value.message + refused.value.hint
