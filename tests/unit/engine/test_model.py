"""The cached model: its memo never changes what the network says; what a step reads; which caches are quantized."""

import shutil
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from conformance.architectures import architectures
from conformance.architectures import tiny_network as network_of
from fakes.heads import LAYER, cached_head, tiny_head, tiny_target
from fakes.models import TINY, tiny_folder, tiny_network
from fakes.packed import gpt_oss, model_as
from fakes.raw_qwen import MOE
from specdec_cli.core.errors import Refused
from specdec_cli.engine.load import blank_network, empty_model, load
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint

NETWORK = tiny_network(TINY | {"max_position_embeddings": 4096}, seed=2)
NOTHING = mx.array([], dtype=mx.int32)


def test_what_was_taken_back_is_forgotten_and_what_was_read_in_its_place_is_remembered():
    model = CachedModel(NETWORK, "m")
    first, second = list(range(3, 100)), [*range(3, 60), *range(100, 120)]
    list(model.prefill(first))
    model.reuse(second)
    assert model.read == first[:57]
    list(model.prefill(second))
    assert model.read == second[:-1]
    assert (model.reach(second), model.reach(first)) == (len(second) - 1, 57)


def test_a_released_draft_gives_its_memory_back_and_says_the_same_afterwards(tmp_path):
    """Weights and caches go; the next use reads both again."""
    wide = TINY | {"hidden_size": 256, "intermediate_size": 1024}
    checkpoint = read_checkpoint(tiny_folder(tmp_path / "m", wide, seed=3), "m")
    model, ids = load(checkpoint), [3 + i % 250 for i in range(300)]
    list(model.prefill(ids))
    before = np.array(model.logits(ids, NOTHING))
    model.commit(ids, len(ids) - 1)
    held = mx.get_active_memory()
    model.release()
    freed = held - mx.get_active_memory()
    assert freed >= model.weight_bytes and model.length == 0
    model.release()  # once more does nothing
    np.testing.assert_array_equal(np.array(model.logits(ids, NOTHING)), before)
    shutil.rmtree(checkpoint.folder)
    model.release()  # what cannot be read again stays
    np.testing.assert_array_equal(np.array(model.logits(ids, NOTHING)), before)


def test_ids_without_an_embedding_are_read_as_the_last_one():
    """mlx looks them up out of bounds: a draft with fewer ids than its target read foreign memory, NaN now and then."""
    narrow = tiny_network(TINY | {"vocab_size": 200}, seed=2)
    model = CachedModel(narrow, "draft")
    ids = [7, 250, 9, 200, 258, 11]
    list(model.prefill(ids[:4]))
    found = np.array(model.logits(ids, model.ids([230])))
    expected = np.array(narrow(mx.array([[7, 199, 9, 199, 199, 11, 199]]))[0, -2:])
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert model.reuse([7, 250, 9, 199]) == 3  # the memo keeps the target's own ids


@pytest.mark.parametrize("name", ["mamba2", "gemma3_text", "qwen3"])
def test_a_marked_length_can_be_returned_to_however_much_is_read_later(name, device_says):
    device_says(prefill_tokens=50)
    model = CachedModel(network_of(architectures()[name], 1), "m")
    text = [3 + (i * i * 7 + i) % 60 for i in range(400)]
    model.mark((33, 120, 121), kept=8)
    chunks = len(list(model.prefill(text)))
    assert chunks == (8 if name == "qwen3" else 10)  # plain caches read no shorter chunks
    for mark in (121, 120, 33):
        changed = [*text[:mark], 5, 6, 7]
        assert model.reach(changed) == mark == model.reuse(changed)


@pytest.mark.parametrize(
    ("name", "queries"),
    [("llama", 2), ("qwen3_5", 2), ("gpt_oss", 2), ("gemma4_text", 4), ("laguna", 3), ("mamba2", 1)],
)
def test_query_heads_a_key_head_are_the_most_of_any_layer(name, queries):
    """Gemma 4's global layers share keys among more heads; Laguna's layers differ; a recurrence has neither."""
    assert CachedModel(network_of(architectures()[name], 1), name).network.queries_a_key == queries


# What a step reads of a mixture of experts: its dense part, and of each layer's E experts the k of its token.


# k / E by configurations, which call k and E otherwise in every family; the shared experts of some are dense.
CHOSEN = {
    "qwen3_moe": 2 / 4,
    "deepseek_v3": 2 / 8,
    "ernie4_5_moe": 2 / 4,
    "gemma4_text": 2 / 4,
    "hunyuan": 2 / 4,
    "kimi_linear": 2 / 4,
    "llama4": 1 / 4,
    "longcat_flash": 3 / 4,
    "nemotron_h": 2 / 4,
    "phixtral": 2 / 4,
    "step3p5": 2 / 4,
    "qwen3": 1,
    "gemma3n": 1,
    "gemma4": 1,
}
EXPERTS = (".switch_mlp.", ".switch_glu.", ".experts.")


def checkpoint(config, name="m"):
    return Checkpoint(name, Path(), config, ())


@pytest.mark.parametrize(("name", "share"), CHOSEN.items())
def test_a_step_reads_the_dense_part_and_k_of_e_experts(name, share):
    """The bugs: all experts counted, so that gpt-oss 20b passed for a fifth of the 120b, and takes two thirds; and of
    Gemma's tables of vectors for each layer more than a row, which made a step of E4B half as dear again.
    """
    model = empty_model(checkpoint(architectures()[name].config))
    sizes = {name: value.nbytes for name, value in tree_flatten(model.network.module.parameters())}
    experts = sum(size for name, size in sizes.items() if any(part in name for part in EXPERTS))
    tables = sum(size for name, size in sizes.items() if ".embed_tokens_per_layer." in name)
    assert (bool(experts), bool(tables)) == (share < 1, name in ("gemma3n", "gemma4"))
    assert model.step_bytes == sum(sizes.values()) - tables - experts + experts * share
    assert model.network.expert_share == pytest.approx(experts * share / model.step_bytes)


def test_the_pass_that_counts_leaves_the_network_as_it_was():
    network = blank_network(checkpoint(architectures()["qwen3_moe"].config))
    kinds = [type(module) for _, module in network.named_modules()]
    CachedModel(network, "m")
    assert [type(module) for _, module in network.named_modules()] == kinds


def test_a_head_with_experts_reads_as_many_of_them_as_its_layer_asks_for():
    target = tiny_target()
    head = cached_head(target, tiny_head(config=LAYER | MOE)).head
    sizes = {name: value.nbytes for name, value in tree_flatten(head.module.parameters())}
    unread = sum(size for name, size in sizes.items() if ".switch_mlp." in name) / 2
    assert unread and head.step_bytes == sum(sizes.values()) - unread + head.output_head.nbytes


@pytest.mark.parametrize(("layers", "experts", "read"), [(36, 128, 4.15e9), (24, 32, 3.18e9)])
def test_gpt_oss_is_packed_in_mxfp4_as_most_that_a_step_reads(layers, experts, read):
    """The bug: five matrices of a layer in 8 bits outnumber its three of experts; so "affine, 8", and rows at half."""
    model = model_as(gpt_oss(layers, experts))
    assert model.network.packing == ("mxfp4", 4)
    assert model.step_bytes == pytest.approx(read, rel=0.01)


def test_experts_are_no_matrices_that_are_multiplied_in_tiles():
    """The bug: those of Mixtral, 14336 wide, stood for its attention, 4096 wide."""
    config = architectures()["mixtral"].config | {"intermediate_size": 4096}
    assert empty_model(checkpoint(config)).network.widest < 4096


# Quantized caches are refused with the reason, before any weight is read. What they compute is in tests/laws.


def wide(name, head_dim):
    found = architectures()[name]
    return network_of(replace(found, config={**found.config, "head_dim": head_dim}), 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mamba2", "keeps ArraysCache, which --kv-bits cannot quantize"),
        ("gpt_oss", "Quantized SDPA does not support attention sinks"),
        ("qwen3", "does not run on a KV cache of 8 bits: "),
    ],
)
def test_a_model_that_cannot_run_on_quantized_caches_is_refused_with_the_reason(name, reason):
    network = wide(name, 32) if name == "gpt_oss" else network_of(architectures()[name], 1)
    with pytest.raises(Refused, match=reason) as caught:
        CachedModel(network, "m", kv_bits=8)
    assert caught.value.hint == "leave --kv-bits out"
