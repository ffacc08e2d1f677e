"""Medusa heads: what they draft is the published equation, and their files are told from others."""

import json

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from fakes.heads import cached_head, random_medusa, tiny_target
from specdec_cli.core.errors import Refused
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.stepwise import HeadDrafter
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.hidden import OutputHead
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.models.heads import is_for_a_head, read_head
from specdec_cli.pairs.files import find
from specdec_cli.pairs.pair import Pair, PairSpec

K, PROMPT = 4, [(7 * i) % 97 + 3 for i in range(13)]


def equations(target, heads, context):
    """arXiv 2401.10774, equation 1: head s scores h + SiLU(W_s h) of the last state by the target's output head."""
    state = np.array(target.fresh().forward(mx.array(context[:-1])).hidden, np.float64)[-1]
    found = []
    for block in heads.blocks:
        product = np.array(block.layers[0].weight, np.float64) @ state
        scored = state + product / (1 + np.exp(-product))
        found.append(int(target.network.hidden.output_head.logits(mx.array(scored[None]))[0].argmax().item()))
    return found


@pytest.mark.parametrize("name", ["qwen3_5", "gemma3_text"])
def test_every_proposal_is_the_equation_after_every_number_of_accepted_tokens(name):
    target = tiny_target(name)
    heads = random_medusa(target.network.hidden.output_head.hidden_size, K)
    for block in heads.blocks:
        block.layers[0].weight = 4 * block.layers[0].weight
    cached = cached_head(target, heads, recent=1)
    drafter, context, seen = HeadDrafter(cached, target, greedy(target.vocab_size)), [*PROMPT], set()
    target.commit(context, min(target.reuse(context), drafter.keeps(context)))
    for output in target.prefill(context):
        drafter.commit(context[: target.length + 1], output.hidden)
    for accepted in (0, 4, 1, 3, 2, 0, 4):
        expected = equations(target, heads, context)
        # A draft is never longer than the heads are many.
        draft = finished(drafter.propose(context, K + 3)).tokens
        assert draft.tolist() == expected
        seen |= set(expected)
        output = target.outputs(context, draft)
        context += [*expected[:accepted], (11 * accepted) % 97 + 3]
        target.commit(context, len(context) - 1)
        drafter.commit(context, output.hidden[: accepted + 1])
        assert cached.nbytes < 5 * 4 * target.network.hidden.output_head.hidden_size * (K + 1)
    assert len(seen) > 4


def test_a_copy_and_a_context_that_nobody_handed_over_draft_the_same():
    target = tiny_target()
    heads = random_medusa(heads=K)
    cached = cached_head(target, heads, recent=1)
    drafter, context = HeadDrafter(cached, target, greedy(target.vocab_size)), [*PROMPT, 9, 4]
    for _ in target.prefill(context):
        pass
    first = finished(drafter.propose(context, K)).tokens.tolist()
    twin = HeadDrafter(cached.copy(len(context)), target.copy(len(context)), greedy(target.vocab_size))
    assert first == finished(twin.propose(context, K)).tokens.tolist() == equations(target, heads, context)


def test_a_draft_reads_the_output_head_once(monkeypatch):
    """All its states are known at once; each token read the output head again, 0.35 GB in an 8B target of 4 bits."""
    target, products = tiny_target(), []
    drafter = HeadDrafter(cached_head(target, random_medusa(heads=K), recent=1), target, greedy(target.vocab_size))
    logits = OutputHead.logits
    monkeypatch.setattr(
        OutputHead, "logits", lambda self, rows: (products.append(rows.shape[0]), logits(self, rows))[1]
    )
    for _ in target.prefill(PROMPT):
        pass
    for k in (1, 3, K + 3):
        list(drafter._read(PROMPT))
        products.clear()
        assert finished(drafter.propose(PROMPT, k)).tokens.size == products[0] == min(k, K) and len(products) == 1


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "heads"
    folder.mkdir()
    heads = random_medusa(16, 3)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(heads.parameters())), {"format": "mlx"})
    config = {"model_type": "medusa", "num_heads": 3, "hidden_size": 16, "vocab_size": 64, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_heads_in_a_folder_are_known_by_their_tensors_and_loaded_as_they_are(folder):
    assert is_for_a_head(folder, "m")
    files = read_head(folder, "m")
    assert (files.family.kind, files.recent, files.reading(100).recent, files.cache_bytes(1000)) == ("medusa", 1, 1, 0)
    loaded = load_head(files, 16)
    assert all(
        mx.array_equal(a.layers[0].weight, b.layers[0].weight)
        for a, b in zip(loaded.blocks, random_medusa(16, 3).blocks, strict=True)
    )
    with pytest.raises(Refused, match=r"the Medusa head of m reads states of \[16, 16\], and the target's have 32"):
        load_head(files, 32)


@pytest.mark.parametrize(
    ("file", "tensors", "words"),
    [
        ("medusa_lm_head.pt", None, r"holds Medusa heads as a pickle \(medusa_lm_head.pt\), which may run code"),
        ("medusa_lm_head.safetensors", "0.0.linear.weight", "has a head of the Medusa family"),
        ("model.safetensors", "lm_heads.0.weight", "has a head of the Medusa family"),
    ],
)
def test_heads_of_others_are_refused_by_name(tmp_path, tiny_pair, file, tensors, words):
    folder = tmp_path / "medusa"
    folder.mkdir()
    if tensors:
        mx.save_safetensors(
            str(folder / file), {tensors: mx.zeros((4, 4)), "blocks.0.layers.0.weight": mx.zeros((4, 4))}
        )
    else:
        (folder / file).write_bytes(b"\x80\x02")
    (folder / "config.json").write_text(json.dumps({"model_type": "medusa", "medusa_num_heads": 2}))
    with pytest.raises(Refused, match=words) as caught:
        find(PairSpec(Pair("foreign", str(tiny_pair[0]), str(folder))))
    assert "\n" not in caught.value.message + caught.value.hint
