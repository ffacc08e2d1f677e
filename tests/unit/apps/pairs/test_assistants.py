"""Gemma 4's assistants as a person meets them: `--draft FOLDER`, check, pairs and tune, and what is refused."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fakes.counting import NO_HEAD, counting_folder, counting_tensors, head_or_trunk
from fakes.gemma import agreeing_folders
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head, is_for_a_head, is_head_only, read_head


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(a target over bytes, the folder of an assistant that agrees with it)."""
    return agreeing_folders(tmp_path_factory.mktemp("gemma"))


def test_an_assistant_is_known_by_its_configuration_and_tensors(folders):
    target, assistant = folders
    assert is_for_a_head(assistant, "m") and is_head_only(assistant) and not is_head_only(target)
    assert find_head(read_checkpoint(target, "t")) is None
    files = read_head(assistant, "m")
    assert (files.family.kind, files.title) == ("gemma4_assistant", "the assistant of m")
    # It keeps nothing, and reads one state however much of a context drafts may read.
    assert (files.cache_bytes(1000), files.recent, files.reading(100).recent) == (0, 1, 1)
    rows = files.tensors["model.embed_tokens.weight"].size_bytes
    assert files.gathered_bytes == rows - rows * 12 // 37


@pytest.mark.slow
def test_an_assistant_is_given_as_draft_and_named_by_its_kind(specdec, folders):
    target, assistant = folders
    asked = ("run", "--target", target, "-n", "60", "--json", "hello")
    code, out, err = specdec(*asked, "--draft", assistant, "--drafter", "model", "-k", "3")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert (events[0]["drafter"], events[0]["draft"]) == ("gemma4_assistant", str(assistant))
    drafted = {event["drafter"] for event in events if event["event"] == "round" and event["draft"]}
    assert drafted == {"gemma4_assistant"} and events[-1]["stats"]["draft_n_accepted"] > 5
    assert json.loads(specdec(*asked, "-k", "0")[1].splitlines()[-1])["tokens"] == events[-1]["tokens"]


def test_check_says_what_it_is_and_takes(specdec, folders):
    target, assistant = folders
    found = json.loads(specdec("check", "--target", target, "--draft", assistant, "--json")[1])
    assert (found["head"]["kind"], found["head"]["tensors"]) == ("gemma4_assistant", 28)
    code, out, _ = specdec("check", "--target", target, "--draft", assistant)
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
REFUSED = {
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


@pytest.mark.parametrize("assistant", REFUSED)
def test_an_assistant_is_refused_in_two_lines(specdec, folders, tmp_path, assistant):
    spoil, code, words, hinted = REFUSED[assistant]
    folder = tmp_path / "other"
    shutil.copytree(folders[1], folder)
    spoil(folder)
    found, message, hint = specdec.refused("run", "-q", "--target", folders[0], "--draft", folder, "hello")
    assert (found, words in message, hinted in hint) == (code, True, True), (message, hint)


def test_an_assistant_drafts_for_no_model_of_another_family(specdec, folders, tmp_path):
    bare = counting_folder(tmp_path / "bare", head_or_trunk(counting_tensors(), False), NO_HEAD)
    why = "reads states of [64, 64], and the target's have 32"
    code, message, _ = specdec.refused("run", "--target", bare, "--draft", folders[1], "hello")
    assert (code, why in message) == (4, True)
    assert specdec("check", "--target", bare, "--draft", folders[1])[0] == 4
