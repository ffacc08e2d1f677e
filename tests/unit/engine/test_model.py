"""The cached model: its memo must never change what the network says."""

import mlx.core as mx
import numpy as np
import pytest

from conformance.architectures import architectures
from conformance.architectures import tiny_network as network_of
from fakes.models import TINY, tiny_folder, tiny_network
from specdec_cli.core.errors import SpecdecError
from specdec_cli.engine.load import load
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.checkpoint import read_checkpoint

NETWORK = tiny_network(TINY | {"max_position_embeddings": 4096}, seed=2)
NOTHING = mx.array([], dtype=mx.int32)


def fresh_logits(ids):
    """Logits of the whole context computed at once, without any cache."""
    return np.array(NETWORK(mx.array([ids]))[0])


def test_reuse_reads_only_what_is_new():
    model = CachedModel(NETWORK, "m")
    list(model.prefill(list(range(3, 100))))
    assert model.reuse([*range(3, 60), 7, 7]) == 57
    assert model.reuse([9, 9, 9]) == 0


def test_what_was_taken_back_is_forgotten_and_what_was_read_in_its_place_is_remembered():
    model = CachedModel(NETWORK, "m")
    first, second = list(range(3, 100)), [*range(3, 60), *range(100, 120)]
    list(model.prefill(first))
    model.reuse(second)
    assert model.read == first[:57]
    list(model.prefill(second))
    assert model.read == second[:-1]
    assert (model.reach(second), model.reach(first)) == (len(second) - 1, 57)


def test_a_trim_that_does_nothing_is_an_error():
    """mlx-lm's trim_prompt_cache returns 0 and goes on: its loop then emits wrong text without a word."""
    model = CachedModel(NETWORK, "m")
    list(model.prefill([3, 4, 5, 6]))
    model._caches.layers[-1].trim = lambda n: 0
    with pytest.raises(SpecdecError, match="took back 0 of 2 tokens"):
        model.commit([3, 4, 5, 6], 1)
    assert model.length == 0


def test_a_forward_that_raises_drops_the_memo():
    model = CachedModel(NETWORK, "m")
    list(model.prefill([3, 4, 5, 6]))
    network, calls = model.network.module, []

    def broken(ids, cache):
        cache[0].update_and_fetch(mx.zeros((1, 2, 1, 16)), mx.zeros((1, 2, 1, 16)))
        calls.append(ids)
        raise RuntimeError("out of memory")

    model.network.module = broken
    with pytest.raises(RuntimeError):
        model.logits([3, 4, 5, 6], NOTHING)
    model.network.module = network
    assert calls and model.length == 0
    np.testing.assert_allclose(
        np.array(model.logits([3, 4, 5, 6], NOTHING))[0], fresh_logits([3, 4, 5, 6])[-1], atol=2e-4
    )


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
def test_a_marked_length_can_be_returned_to_however_much_is_read_later(name, monkeypatch):
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 50)
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
