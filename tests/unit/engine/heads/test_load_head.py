"""Heads from folders, by their tensors: the same head in every packaging, and how well one guesses."""

import json
from itertools import islice

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from fakes.counting import counting_folder, counting_tensors, random_head
from fakes.device import count_read
from fakes.heads import random_medusa
from fakes.products import spread
from fakes.raw_qwen import MOE, config_of, raw_tensors, write_checkpoint
from specdec_cli.core.errors import Refused
from specdec_cli.engine import device
from specdec_cli.engine.heads.load_head import FLOOR, WORDS, HeadAgreement, load_agreeing, load_head, own_texts
from specdec_cli.engine.heads.mtp import QWEN
from specdec_cli.engine.load import load
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head, is_for_a_head, read_head

SIZE = 64


def loaded(folder):
    return load_head(read_head(folder, "m"), SIZE)


def parameters(head):
    return {name: np.array(value.astype(mx.float32)) for name, value in tree_flatten(head.parameters())}


def shifted(name, value):
    return value + 1 if value.ndim == 1 and "norm" in name else value


def converted(moe=False):
    """As an MLX conversion stores them: convolutions turned, norms shifted; trunk and head."""
    tensors = {}
    for name, value in raw_tensors(moe).items():
        keeps = "linear_attn.norm" in name
        tensors[name] = np.ascontiguousarray(np.moveaxis(value, 2, 1)) if "conv1d" in name else value
        tensors[name] = tensors[name] if keeps else shifted(name, tensors[name])
    return tensors


def bare(moe=False):
    """As a head-only repository stores them: bare names, norms shifted, experts by matrix."""
    found = {n.removeprefix("mtp."): shifted(n, v) for n, v in raw_tensors(moe).items() if n.startswith("mtp.")}
    if moe:
        path = "layers.0.mlp"
        gate, up = np.split(found.pop(f"{path}.experts.gate_up_proj"), 2, axis=-2)
        down = found.pop(f"{path}.experts.down_proj")
        for name, value in (("gate", gate), ("up", up), ("down", down)):
            found[f"{path}.switch_mlp.{name}_proj.weight"] = np.ascontiguousarray(value)
    return found


def one_by_one(tensors):
    """Experts as Qwen3-Next stores them."""
    found = dict(tensors)
    path = "mtp.layers.0.mlp.experts"
    gate, up = np.split(found.pop(f"{path}.gate_up_proj"), 2, axis=-2)
    for name, value in (("gate", gate), ("up", up), ("down", found.pop(f"{path}.down_proj"))):
        for expert in range(MOE["num_experts"]):
            found[f"{path}.{expert}.{name}_proj.weight"] = np.ascontiguousarray(value[expert])
    return found


HEAD_ONLY = {"model_type": "qwen3_5_mtp", "block_size": 3, "dtype": "float32"}
PACKAGINGS = {
    "original": lambda moe: (raw_tensors(moe), {}),
    "an unindexed file": lambda moe: (raw_tensors(moe), {"mtp.safetensors": "mtp."}),
    "a subfolder": lambda moe: (raw_tensors(moe), {"mtp/model.safetensors": "mtp."}),
    "a file of any name": lambda moe: (raw_tensors(moe), {"extra.safetensors": "mtp."}),
    "a conversion that kept it": lambda moe: (converted(moe), {"mtp.safetensors": "mtp."}),
    "head only": lambda moe: (bare(moe), {}),
    "head only, bare, in a subfolder of its target": lambda moe: (
        {n: v for n, v in converted(moe).items() if not n.startswith("mtp.")} | bare(moe),
        {"model.safetensors": "model.", "lm.safetensors": "lm_head", "mtp/model.safetensors": ""},
    ),
    "experts one by one": lambda moe: (one_by_one(raw_tensors(moe)) if moe else raw_tensors(moe), {}),
}


@pytest.mark.parametrize(("packaging", "moe"), spread(PACKAGINGS, [True, False]))
def test_one_head_is_the_same_in_every_packaging(tmp_path, packaging, moe):
    expected = parameters(loaded(write_checkpoint(tmp_path / "raw", raw_tensors(moe), config_of(moe))))
    tensors, files = PACKAGINGS[packaging](moe)
    folder = write_checkpoint(tmp_path / "other", tensors, config_of(moe) | HEAD_ONLY, files)
    found = parameters(loaded(folder))
    assert found.keys() == expected.keys() and len(found) == (19 if moe else 15) + (1 if moe else 0)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def test_norms_are_shifted_by_the_layout_of_the_trunk(tmp_path):
    raw = raw_tensors()
    folder = write_checkpoint(tmp_path / "raw", raw, config_of())
    np.testing.assert_allclose(parameters(loaded(folder))["norm.weight"], raw["mtp.norm.weight"] + 1, atol=1e-6)
    alone = {name: value for name, value in raw.items() if name.startswith("mtp.")}
    for metadata, zero_centred in ((None, True), ({"format": "pt"}, True), ({"format": "mlx"}, False)):
        folder = write_checkpoint(tmp_path / str(metadata), alone, config_of(), metadata=metadata)
        assert read_head(folder, "m").zero_centred == zero_centred


@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 32), ("affine", 8, 32), ("mxfp4", 4, 32)])
def test_a_quantized_head_is_read_by_the_shapes_of_its_tensors(tmp_path, mode, bits, group):
    exact = {name: mx.array(value) for name, value in bare().items()}
    stored = {}
    for name, value in exact.items():
        if value.ndim < 2:
            stored[name] = value
            continue
        parts = mx.quantize(value, group_size=group, bits=bits, mode=mode)
        names = [name, *(name.removesuffix("weight") + end for end in ("scales", "biases"))]
        stored |= dict(zip(names, parts, strict=False))
    folder = write_checkpoint(tmp_path, {}, config_of() | HEAD_ONLY)
    mx.save_safetensors(str(folder / "model.safetensors"), stored)
    head = loaded(folder)
    assert (head.fc.group_size, head.fc.bits, head.fc.mode) == (group, bits, mode)
    inputs = mx.random.normal((3, 2 * SIZE), key=mx.random.key(1))
    wanted = inputs @ exact["fc.weight"].T
    assert float(mx.abs(head.fc(inputs) - wanted).mean()) < (0.2 if bits == 4 else 0.02)


def test_a_head_is_read_in_slices_as_its_target_is(tmp_path, monkeypatch):
    folder = write_checkpoint(tmp_path, raw_tensors(), config_of())
    monkeypatch.setattr(device, "SLICE_ARRAYS", 6)
    counts = count_read(monkeypatch)
    head = loaded(folder)
    assert max(counts) == 6 and sum(counts) == len(tree_flatten(head.parameters()))


# Medusa heads


@pytest.fixture
def medusa(tmp_path):
    folder = tmp_path / "heads"
    folder.mkdir()
    heads = random_medusa(16, 3)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(heads.parameters())), {"format": "mlx"})
    config = {"model_type": "medusa", "num_heads": 3, "hidden_size": 16, "vocab_size": 64, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_heads_in_a_folder_are_known_by_their_tensors_and_loaded_as_they_are(medusa):
    assert is_for_a_head(medusa, "m")
    files = read_head(medusa, "m")
    assert (files.family.kind, files.recent, files.reading(100).recent, files.cache_bytes(1000)) == ("medusa", 1, 1, 0)
    found = load_head(files, 16)
    assert all(
        mx.array_equal(a.layers[0].weight, b.layers[0].weight)
        for a, b in zip(found.blocks, random_medusa(16, 3).blocks, strict=True)
    )
    with pytest.raises(Refused, match=r"the Medusa head of m reads states of \[16, 16\], and the target's have 32"):
        load_head(files, 32)


# How well a head agrees with its target's own words, and which head not at all: those of `fakes.counting`.


PROMPTS = [[(31 * i + 17 * j) % 250 + 3 for i in range(6)] for j in range(4)]


def files_in(folder, tensors=None):
    return find_head(read_checkpoint(counting_folder(folder, tensors), "counting"))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = counting_folder(tmp_path_factory.mktemp("counting") / "model")
    return load(read_checkpoint(folder, "counting")), find_head(read_checkpoint(folder, "counting"))


def texts_of(model, stops=frozenset()):
    return own_texts(model, PROMPTS, stops)


def test_a_head_that_agrees_as_its_family_is_read_is_asked_for_one_text_only(target):
    model, files = target
    texts = texts_of(model)
    head, found = load_agreeing(files, model, texts)
    assert (found.words, head.recipe) == (WORDS, QWEN)
    assert found.share > 0.9 and found.chance < 0.1
    assert len(list(texts)) == len(PROMPTS) - 1


def test_a_head_that_was_never_learned_is_refused_with_the_numbers(target, tmp_path):
    files = files_in(tmp_path / "m", random_head(counting_tensors()))
    _, found = load_agreeing(files, target[0], texts_of(target[0]))
    assert found.words == len(PROMPTS) * WORDS
    with pytest.raises(
        Refused, match=r"the MTP head of counting guesses \d+ % of 128 tokens of t, where chance guesses \d+ %"
    ) as caught:
        found.require(files, "t")
    assert caught.value.exit_code == 4 and "\n" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("share", "chance", "refused"), [(0.14, 0.05, True), (0.15, 0.05, False), (0.9, 0.9, True), (1.0, 1.0, False)]
)
def test_the_floor_is_agreement_beyond_chance(share, chance, refused):
    """Where luck guesses every word there is no telling, and nobody is refused."""
    found = HeadAgreement(128, share, chance)
    assert (found.kappa < FLOOR) == refused


def test_texts_are_the_targets_own_greedy_words_and_nothing_of_it_changes(target):
    model, context = target[0], list(PROMPTS[0])
    texts = list(islice(texts_of(model), 2))
    for _ in range(12):
        context.append(int(model.fresh().logits(context, model.ids([]))[-1].argmax()))
    assert texts[0].context[: len(context)] == context and list(texts[0].words) == texts[0].context[6:]
    assert len(texts[0].hidden) == len(texts[0].context) - 1
    assert not model.length and model.outputs([5, 6, 7]).hidden is None
