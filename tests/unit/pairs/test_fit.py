"""Does it fit: estimates against what mlx really used, sums, limits, and what the refusal proposes."""

import json
import subprocess
import sys
from dataclasses import replace

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from conformance.architectures import architectures
from fakes.models import TINY
from fakes.serving import ids, tiny_loaded
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import size
from specdec_cli.core.request import Request
from specdec_cli.engine import device
from specdec_cli.engine.load import blank_network, empty_model, load_network
from specdec_cli.hub import HubSnapshot
from specdec_cli.hub.cached import RemoteFile
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint
from specdec_cli.pairs.files import ModelFiles, PairFiles, read_model
from specdec_cli.pairs.fit import MOST_SNAPSHOTS, Fit, Footprint, footprint
from specdec_cli.pairs.limits import ContextLimit
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.system.servers import RunningServer

GB = 10**9
TARGET, DRAFT = Footprint("big", 8 * GB, GB, GB), Footprint("small", GB, GB // 2, GB // 4)


def fit(usable, footprints=(TARGET, DRAFT), **more):
    """At 4096 tokens, where `footprints` are theirs."""

    def sizes(tokens):
        return tuple(replace(part, cache_bytes=part.cache_bytes * tokens // 4096) for part in footprints)

    return Fit(None, sizes, int(usable * GB / 0.92), tokens=4096, **more)


def test_the_peak_counts_weights_and_caches_of_both_and_the_larger_prefill_and_fits_up_to_its_limit():
    assert fit(16).peak_bytes == 11.5 * GB and fit(16).prefill_bytes == GB
    assert fit(11.6).fits and not fit(11.4).fits


def test_conversations_side_by_side_count_the_weights_once_their_caches_each_and_the_longest_prefill():
    def sizes(tokens):
        return (Footprint("m", 100, 6 * tokens, tokens, 2 * tokens),)

    found = Fit(None, sizes, int(1000 / 0.92) + 1)
    assert found.at(10, 40, 20).peak_bytes == 100 + 6 * 70 + 40
    assert replace(found, snapshots=5).at(10, 40, 20).peak_bytes == 100 + (2 + 2 * 5) * 70 + 40
    assert found.at().peak_bytes == 100 and found.at(10, 40, 20).room_bytes == 1000 - 560
    assert found.at(68, 50, 20).fits and not found.at(69, 50, 20).fits


@pytest.mark.parametrize(
    "tokens", [300, pytest.param(2000, marks=pytest.mark.slow), pytest.param(5000, marks=pytest.mark.full)]
)
def test_a_caches_bytes_are_those_of_a_slot_that_read_so_much(tmp_path, tokens):
    """Within a row of blocks: caches grow by 256 tokens."""
    pair = tiny_loaded(tmp_path)
    slot = pair.slot()
    for model in (slot.target, slot.draft):
        list(model.prefill(ids(tokens)))
    counted, grain = (sum(part.cache_bytes for part in pair.fit.sizes(n)) for n in (tokens, 256))
    assert abs(slot.nbytes - counted) <= grain


@pytest.mark.parametrize("kind", ["window", "recurrent"])
def test_bounded_caches_stop_growing_and_keep_as_many_snapshots_as_the_memory_allows(tmp_path, kind):
    fit = tiny_loaded(tmp_path, kind).fit
    poor, rich = replace(fit, usable_bytes=fit.weight_bytes * 2).with_more_snapshots, fit.with_more_snapshots
    assert fit.snapshots <= poor.snapshots < rich.snapshots == MOST_SNAPSHOTS
    near, far = (rich.at(1 << bits).peak_bytes - fit.weight_bytes for bits in (14, 15))
    assert near <= far < 2 * near and poor.at(1 << 14).peak_bytes < rich.at(1 << 14).peak_bytes


@pytest.mark.parametrize(
    ("found", "quantized", "hint"),
    [
        (fit(10), fit(11.6), "--kv-bits 8"),
        (fit(10.8), fit(10.8), "--max-context 2048"),
        (fit(5), None, "--drafter none"),
        (fit(5, (TARGET,)), None, "a lower quantization"),
    ],
)
def test_the_refusal_names_both_numbers_and_what_would_fit(found, quantized, hint, monkeypatch):
    monkeypatch.setattr(Fit, "quantized", quantized)
    error = found.obstacle()
    assert isinstance(error, DoesNotFit) and hint in error.hint and "--force" in error.hint
    assert f"{size(found.peak_bytes)} at 4096 tokens" in error.message
    assert f"{size(found.limit_bytes)} are usable" in error.message


@pytest.mark.parametrize(
    ("remedies", "hint"),
    [
        ({"--max-context", "--force"}, "a smaller context fits: --max-context 2048; --force loads it anyway"),
        ({"--drafter"}, "try without the draft (--drafter none) or a smaller pair (specdec pairs)"),
        ({"--force"}, "try a smaller model or a lower quantization; --force loads it anyway"),
        ((), "try a smaller model or a lower quantization"),
    ],
)
def test_a_refusal_names_no_option_that_the_command_lacks(remedies, hint, monkeypatch):
    monkeypatch.setattr(Fit, "quantized", fit(11.6))
    assert fit(10.8, remedies=frozenset(remedies)).obstacle().hint == hint


def test_what_just_fits_beside_a_server_is_told_whose_memory_it_is():
    server = RunningServer(7, "tiny", "http://127.0.0.1:1", 1.0, 3 * GB)
    assert fit(12, servers=(server,)).warning == (
        "memory 96 % of 12.0 GB beside the server of tiny, which holds 3.0 GB; specdec stop 7 frees that"
    )
    assert not fit(20, servers=(server,)).warning and not fit(12).warning


def test_the_shorter_context_of_target_and_draft_bounds_a_reply_that_drafts_with_it():
    limit = ContextLimit(target=100, draft=60)
    assert limit.tokens(Request(drafter="model")) == 60 and ContextLimit(50, 60).tokens(Request(drafter="model")) == 50
    assert limit.tokens(Request(drafter="none")) == limit.tokens(Request(drafter="ngram")) == 100
    assert limit.warning(Request(drafter="model", max_context=80)) and not limit.warning(Request(max_context=60))


# In a process of its own: the peak counts everything the process ever held at once.
MEASURE = """
import json, sys
from pathlib import Path
import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.pairs.fit import footprint
from specdec_cli.engine.load import empty_model, load
folder, config, context = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
if config:
    folder.mkdir(parents=True, exist_ok=True)
    model_class, args_class = _get_classes(config)
    network = model_class(args_class.from_dict(config))
    network.set_dtype(getattr(mx, config["dtype"]))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())))
    (folder / "config.json").write_text(json.dumps(config))
    del network
    mx.clear_cache()
checkpoint = read_checkpoint(folder, "m")
part = footprint(checkpoint, context, checkpoint.loaded_bytes, empty_model(checkpoint))
model = load(checkpoint)
mx.reset_peak_memory()
ids = [3 + i % 50 for i in range(context - 5)]
for _ in model.prefill(ids):
    pass
mx.eval(model.logits(ids, mx.array([3, 4, 5, 6])))
print(json.dumps([part.weight_bytes + part.cache_bytes + part.prefill_bytes, mx.get_peak_memory()]))
"""
SIZES = {
    "50 MB float32": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1024, "dtype": "float32"},
    "120 MB bfloat16": {"hidden_size": 768, "num_hidden_layers": 8, "intermediate_size": 2048, "dtype": "bfloat16"},
}
SHARED = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 16000}


HYBRID = {
    "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "head_dim": 64, "vocab_size": 8000,
    "num_hidden_layers": 8, "num_key_value_heads": 4, "linear_num_value_heads": 8, "linear_num_key_heads": 8,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip


def measured(folder, config, context):
    """(estimated bytes, mlx's peak) of one model at one context length."""
    command = [sys.executable, "-c", MEASURE, str(folder), json.dumps(config), str(context)]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


CASES = [pytest.param("50 MB float32", 1400, marks=pytest.mark.full), ("120 MB bfloat16", 300)]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "context"), CASES)
def test_estimates_are_within_ten_percent_of_the_measured_peak(tmp_path, model, context):
    config = TINY | {"max_position_embeddings": 4096, "tie_word_embeddings": True} | SHARED | SIZES[model]
    estimate, peak = measured(tmp_path / "model", config, context)
    assert estimate == pytest.approx(peak, rel=0.10)


def test_fp8_is_counted_as_it_is_loaded(tmp_path):
    """One byte a weight was counted of what mlx-lm makes bfloat16 of."""
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "first_k_dense_replace": 3, "rope_scaling": None}
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    config = architectures()["deepseek_v3"].config | sizes | {"dtype": "bfloat16"}
    network, tensors = blank_network(Checkpoint("m", tmp_path, config, ())), {}
    network.set_dtype(mx.bfloat16)
    for name, value in tree_flatten(network.parameters()):
        packs = value.ndim == 2 and "mlp" in name
        tensors[name] = mx.full(value.shape, 0x38, mx.uint8) if packs else value
        if packs:
            tensors[f"{name}_scale_inv"] = mx.ones([-(-size // 128) for size in value.shape])
    path = tmp_path / "model.safetensors"
    mx.save_safetensors(str(path), tensors)
    text = path.read_bytes()
    length = 8 + int.from_bytes(text[:8], "little")
    header = text[8:length].replace(b'"U8"', b'"F8_E4M3"')
    path.write_bytes(len(header).to_bytes(8, "little") + header + text[length:])
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": fp8}))
    found = read_checkpoint(tmp_path, "m")
    used = sum(value.nbytes for _, value in tree_flatten(load_network(found).parameters()))
    assert found.loaded_bytes == pytest.approx(used, rel=0.1)
    # Twice the files was said of those on the Hub, whose embeddings are no FP8.
    listed = RemoteFile(path.name, path.stat().st_size, None)
    on_the_hub = read_model(tmp_path, "m", HubSnapshot("org/m", 40 * "a", (listed,)))
    assert on_the_hub.weight_bytes == pytest.approx(used, rel=0.05)


def taken(checkpoint, tokens, kv_bits=None):
    return footprint(checkpoint, tokens, 0, empty_model(checkpoint, kv_bits))


def test_one_layer_alone_computes_neither_attention_nor_mlp_before_the_last_token(tmp_path):
    config, tokens = TINY | SHARED | {"hidden_size": 64, "head_dim": 64, "num_hidden_layers": 1}, 128
    small, big = (
        taken(Checkpoint("m", tmp_path, config | {"intermediate_size": inner}, ()), tokens).prefill_bytes
        for inner in (256, 1024)
    )
    two = taken(Checkpoint("m", tmp_path, config | {"num_hidden_layers": 2}, ()), tokens)
    assert small == big < two.prefill_bytes


def test_of_a_size_that_each_layer_has_its_own_of_the_largest_counts(tmp_path):
    """The bug: Gemma 3n states a list, and `check` refused it as no size."""
    config = architectures()["gemma3n"].config

    def prefill_bytes(inner):
        text = config["text_config"] | {"intermediate_size": inner}
        return taken(Checkpoint("m", tmp_path, config | {"text_config": text}, ()), 64).prefill_bytes

    assert prefill_bytes([64, 128, 64, 64, 64, 64]) == prefill_bytes(128) > prefill_bytes(64)


def scores_bytes(tmp_path, head_dim, kv_bits=None, tokens=4096):
    """Bytes by which the estimated prefill of 8 heads of this size exceeds one without attention scores, on Metal.

    Beside the scores it holds the activations and, from the second chunk on, a copy of one layer's cache.
    """
    config = TINY | SHARED | {"hidden_size": 64, "head_dim": head_dim, "max_position_embeddings": 8192}
    checkpoint = Checkpoint("m", tmp_path, config, ())
    rows = device.prefill_tokens()
    activations = rows * (3 * config["intermediate_size"] + 10 * 64) * 4
    found = taken(checkpoint, tokens, kv_bits)
    return found.prefill_bytes - activations - found.cache_bytes // config["num_hidden_layers"]


@pytest.mark.parametrize(("head_dim", "fused"), [(64, True), (192, False)])
def test_scores_count_where_metal_has_no_fused_kernel_for_the_head_size(tmp_path, device_says, head_dim, fused):
    """The bug: attention was taken as fused for every head size, and 0.5 GB of a prompt's scores were missing."""
    device_says(backend="metal")
    assert scores_bytes(tmp_path, head_dim) == (0 if fused else 8 * 2048 * 4096 * 4)


def test_a_drafts_bounded_cache_is_counted_and_the_longest_context_is_the_last_that_fits(tmp_path, device_says):
    config = TINY | SHARED | {"hidden_size": 64, "head_dim": 64, "max_position_embeddings": 1 << 20}
    model = Checkpoint("m", tmp_path, config, ())
    sizes = [taken(model.as_draft(1024), tokens).cache_bytes for tokens in (1024, 4096, 65536)]
    assert sizes[0] < sizes[1] == sizes[2] < taken(model, 4096).cache_bytes
    longest = {}
    device_says(usable_bytes=10**9)
    for draft in (model, model.as_draft(1024)):
        parts = ModelFiles(model), ModelFiles(draft)
        found = Fit.of(PairFiles(PairSpec(Pair("p", "m", "m")), *parts)).at(4096)
        for tokens, fits in ((found.largest_context, True), (found.largest_context + 256, False)):
            assert found.at(tokens).fits == fits
        longest[draft.recent] = found.largest_context
    assert longest[1024] > 1.1 * longest[None]


def test_a_recurrence_has_its_kernel_on_metal_alone(tmp_path, device_says):
    values = HYBRID | {"max_position_embeddings": 8192}
    config = {"model_type": "qwen3_5", "dtype": "float32", "text_config": {"model_type": "qwen3_5_text", **values}}
    checkpoint, found = Checkpoint("m", tmp_path, config, ()), {}
    for backend in ("metal", "cuda"):
        device_says(backend=backend, prefill_tokens=512)
        found[backend] = taken(checkpoint, 512).prefill_bytes
    # For each token a state of 8 heads of 64 x 64, and 3 rows of its convolution over 1536 channels.
    assert found["cuda"] - found["metal"] == 512 * (8 * 64 * 64 + 3 * 1536) * 4
