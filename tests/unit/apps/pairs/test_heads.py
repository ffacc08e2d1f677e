"""Heads and assistants as a person meets them: --draft FOLDER, check; a family of one's own; their refusals."""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fakes.counting import HEAD_CONFIG, NO_HEAD, counting_folder, counting_tensors
from fakes.counting import head_or_trunk as part
from fakes.gemma import agreeing_folders
from fakes.raw_qwen import write_checkpoint
from specdec_cli.engine.heads.mtp import QWEN_BUILD, Build
from specdec_cli.models import heads
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head, is_for_a_head, is_head_only, read_head


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(a target without a head, its head, a target with its head)."""
    root, tensors = tmp_path_factory.mktemp("heads"), counting_tensors()
    bare = counting_folder(root / "bare", part(tensors, False), NO_HEAD)
    return bare, write_checkpoint(root / "head", part(tensors, True), HEAD_CONFIG), counting_folder(root / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mtp", "gemma4_assistant"])
def test_a_head_is_given_as_draft_and_named_by_its_kind(specdec, folders, gemma, kind):
    target, head = folders[:2] if kind == "mtp" else gemma
    asked = ("run", "--target", target, "-n", "60", "--json", "hello")
    code, out, err = specdec(*asked, "--draft", head, "--drafter", "model", "-k", "3")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err, events[0]["drafter"], events[0]["draft"]) == (0, "", kind, str(head))
    assert {event["drafter"] for event in events if event["event"] == "round" and event["draft"]} == {kind}
    assert events[-1]["stats"]["draft_n_accepted"] > 5
    assert json.loads(specdec(*asked, "-k", "0")[1].splitlines()[-1])["tokens"] == events[-1]["tokens"]
    if kind == "mtp":
        assert events[-1]["stats"]["draft_acceptance_rate"] > 0.8


TOY = Build(QWEN_BUILD.layer)
TOY_PARTS = {"mix": "fc", "token": "pre_fc_norm_embedding", "state": "pre_fc_norm_hidden", "last": "norm"}
TOY_FAMILY = heads.HeadFamily(
    "Toy", f"{__name__}:TOY", frozenset({"qwen3_5_text"}), re.compile(r"guess\.\d+\."), "mix.", TOY_PARTS
)


def test_a_family_of_heads_is_one_row(specdec, folders, tmp_path, monkeypatch):
    """A head under names that only the toy's row knows; without the row it is no head."""
    names = {f"mtp.{own}.weight": f"guess.0.{toy}.weight" for toy, own in TOY_PARTS.items()}
    # The counting head's norms are stored less 1, as Qwen's are; those of other families are not.
    tensors = {n: v + 1 if v.ndim == 1 else v for n, v in part(counting_tensors(), True).items()}
    stored = {names.get(name, name.replace("mtp.layers.0", "guess.0")): tensors[name] for name in tensors}
    head = write_checkpoint(tmp_path / "toy", stored, HEAD_CONFIG)
    asked = ("--target", folders[0], "--draft", head, "--json")
    assert specdec("check", *asked)[0] != 0
    monkeypatch.setattr(heads, "FAMILIES", (*heads.FAMILIES, TOY_FAMILY))
    assert json.loads(specdec("check", *asked)[1])["head"]["tensors"] == len(stored)
    drafted, plain = (specdec("run", *asked, "-k", k, "-n", "16", "hello")[1].splitlines()[-1] for k in ("3", "0"))
    assert json.loads(drafted)["stats"]["draft_acceptance_rate"] > 0.8
    assert json.loads(drafted)["tokens"] == json.loads(plain)["tokens"]


PACKED_WRONG = {
    "mtp.fc.weight": np.zeros((32, 8), np.uint32),
    "mtp.fc.scales": np.zeros((32, 3), np.float32),
    "mtp.fc.biases": np.zeros((32, 3), np.float32),
}
# Of another size or target, or announced only: `engine/heads/test_load_head` and `session/test_heads`.
HEADS = {
    "that lacks a tensor": (
        lambda: {n: v for n, v in part(counting_tensors(), True).items() if "q_norm" not in n},
        3,
        "lacks 1 of 15 tensors, first layers.0.self_attn.q_norm.weight",
    ),
    "in groups that fit no quantization": (
        lambda: part(counting_tensors(), True) | PACKED_WRONG,
        3,
        "stores fc in a quantization that mlx does not have",
    ),
}


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """(a target over bytes, the folder of an assistant that agrees with it)."""
    return agreeing_folders(tmp_path_factory.mktemp("gemma"))


def test_an_assistant_is_known_by_its_configuration_and_tensors(gemma):
    target, assistant = gemma
    assert is_for_a_head(assistant, "m") and is_head_only(assistant) and not is_head_only(target)
    assert find_head(read_checkpoint(target, "t")) is None
    files = read_head(assistant, "m")
    assert (files.family.kind, files.title) == ("gemma4_assistant", "the assistant of m")
    # It keeps nothing, and reads one state however much of a context drafts may read.
    assert (files.cache_bytes(1000), files.recent, files.reading(100).recent) == (0, 1, 1)
    rows = files.tensors["model.embed_tokens.weight"].size_bytes
    assert files.gathered_bytes == rows - rows * 12 // 37


def test_check_says_what_it_is_and_takes(specdec, folders, gemma):
    for (target, head), kind, tensors in ((folders[:2], "mtp", 15), (gemma, "gemma4_assistant", 28)):
        found = json.loads(specdec("check", "--target", target, "--draft", head, "--json")[1])["head"]
        assert (found["kind"], found["tensors"]) == (kind, tensors)
    code, out, _ = specdec("check", "--target", target, "--draft", head)
    assert code == 0 and "assistant: 28 tensors, 325 kB" in out


FULL_LAYER = "model.layers.1.self_attn"


def stored(change):
    """A change of the tensors."""

    def apply(folder):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)

    return apply


def said(**values):
    """A change of the configuration, of `text_config` where the value is not above it."""

    def apply(folder):
        config = json.loads((folder / "config.json").read_text())
        for name, value in values.items():
            (config if name in config else config["text_config"])[name] = value
        (folder / "config.json").write_text(json.dumps(config))

    return apply


def heads_of_three(folder):
    def fewer(tensors):
        for name in tensors:
            if name.endswith(("q_proj.weight", "o_proj.weight")):
                axis = int(name.endswith("o_proj.weight"))
                tensors[name] = np.take(tensors[name], range(3 * tensors[name].shape[axis] // 4), axis)

    stored(fewer)(folder)
    said(num_attention_heads=3)(folder)


def drawn_anew(tensors):
    drawn = np.random.default_rng(3)
    for name, value in tensors.items():
        if value.ndim > 1:
            tensors[name] = drawn.standard_normal(value.shape).astype(np.float32) / value.shape[-1] ** 0.5


OTHERS = "a head drafts only for the target it was trained with"
NARROW = "a sliding_attention layer of 3 heads of 16 values, and the target has keys of 2 heads of 16 values for it"
CHUNKED = "a chunked_attention layer of 4 heads of 16 values, and the target has only full_attention, sliding_attention"
OWN_KEYS = {f"{FULL_LAYER}.k_proj.weight": np.ones((64, 64), np.float32)}


def cut_states(tensors):
    tensors["post_projection.weight"] = tensors["post_projection.weight"][:48]


def named_twice(tensors):
    tensors["masked_embedding.token_ordering"][0] = tensors["masked_embedding.token_ordering"][1]


# How it is spoiled, the exit code, and words of the message and of the hint.
ASSISTANTS = {
    "of another target": (stored(drawn_anew), 4, "tokens of", "of a QAT target its QAT assistant"),
    "of another size": (stored(cut_states), 4, "reads states of [48, 64], and the target's have 64", OTHERS),
    "of another window": (said(sliding_window=32), 4, "was trained with a sliding_window of 32, and", OTHERS),
    "whose keys are narrower": (said(global_head_dim=16), 4, "was trained with a global_head_dim of 16", OTHERS),
    "whose heads share no keys": (heads_of_three, 4, NARROW, OTHERS),
    "of other layers": (said(layer_types=["chunked_attention", "full_attention"]), 4, CHUNKED, OTHERS),
    "with keys of its own": (
        stored(lambda tensors: tensors.update(OWN_KEYS)),
        4,
        f"has 1 tensors that specdec does not support, first {FULL_LAYER}.k_proj.weight",
        "use a small language model",
    ),
    "whose clusters name a token twice": (
        stored(named_twice),
        3,
        "does not name each of 259 tokens once",
        "download it again",
    ),
    "whose clusters are no number": (said(num_centroids="many"), 3, "cannot be built", "its config.json lacks"),
    "whose clusters do not divide its tokens": (
        said(num_centroids=36),
        3,
        "12 of 36 clusters do not divide 259 tokens",
        "its config.json lacks",
    ),
    "of another kind": (
        said(model_type="muse_glimmer_assistant"),
        4,
        "(muse_glimmer_assistant) has a head of the assistant family (post_projection.weight)",
        "use a small language model",
    ),
}


def refused(specdec, target, folder):
    return specdec.refused("run", "-q", "--target", target, "--draft", folder, "hello")


@pytest.mark.parametrize("head", HEADS)
def test_a_head_is_refused_in_two_lines(specdec, folders, tmp_path, head):
    tensors, code, words = HEADS[head]
    found, message, hint = refused(specdec, folders[0], write_checkpoint(tmp_path / "other", tensors(), HEAD_CONFIG))
    assert found == code and words in message and hint


@pytest.mark.parametrize("assistant", ASSISTANTS)
def test_an_assistant_is_refused_in_two_lines(specdec, gemma, tmp_path, assistant):
    spoil, code, words, hinted = ASSISTANTS[assistant]
    folder = shutil.copytree(gemma[1], tmp_path / "other")
    spoil(folder)
    found, message, hint = refused(specdec, gemma[0], folder)
    assert (found, words in message, hinted in hint) == (code, True, True), (message, hint)
