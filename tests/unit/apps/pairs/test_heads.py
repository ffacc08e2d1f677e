"""Heads as a person meets them: `--draft FOLDER`, `--drafter mtp`, check, doctor and pairs, and their refusals."""

import json
import re

import numpy as np
import pytest

from fakes.counting import HEAD_CONFIG, NO_HEAD, counting_folder, counting_tensors, random_head
from fakes.counting import head_or_trunk as part
from fakes.raw_qwen import raw_tensors, write_checkpoint
from specdec_cli.engine.heads.mtp import QWEN_BUILD, Build
from specdec_cli.models import heads


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(a target without a head, its head, a target with its head)."""
    root, tensors = tmp_path_factory.mktemp("heads"), counting_tensors()
    bare = counting_folder(root / "bare", part(tensors, False), NO_HEAD)
    return bare, write_checkpoint(root / "head", part(tensors, True), HEAD_CONFIG), counting_folder(root / "whole")


@pytest.mark.slow
def test_a_head_is_given_as_draft_and_named_by_its_kind(specdec, folders):
    bare, head, _ = folders
    asked = ("run", "--target", bare, "--draft", head, "--drafter", "model", "-k", "3", "-n", "24", "--json", "hello")
    code, out, err = specdec(*asked)
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert (events[0]["drafter"], events[0]["draft"]) == ("mtp", str(head))
    assert {event["drafter"] for event in events if event["event"] == "round" and event["draft"]} == {"mtp"}
    assert events[-1]["stats"]["draft_acceptance_rate"] > 0.8
    plain = specdec("run", "--target", bare, "-k", "0", "-n", "24", "--json", "hello")[1]
    assert json.loads(plain.splitlines()[-1])["tokens"] == events[-1]["tokens"]
    code, out, _ = specdec("check", "--target", bare, "--draft", head, "--json")
    found = json.loads(out)["head"]
    assert (code, found["kind"], found["tensors"]) == (0, "mtp", 15)


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


def test_the_targets_own_head_is_found_and_said(specdec, folders):
    whole = folders[2]
    code, out, err = specdec("check", "--target", whole)
    assert code == 0 and "the target's own MTP head: 15 tensors, 60 kB" in out
    assert err == "the MTP head among the target's own files drafts\n"
    code, out, err = specdec("run", "--target", whole, "--drafter", "mtp", "-k", "3", "-n", "24", "hello")
    assert code == 0 and "accepted" in err


def test_a_pair_with_a_head_can_be_added_listed_and_used(specdec, folders):
    bare, head, _ = folders
    assert specdec("pairs", "add", "counting", "--target", bare, "--draft", head, "-k", "3")[0] == 0
    rows = json.loads(specdec("pairs", "--json")[1])
    row = next(row for row in rows if row["name"] == "counting")
    assert (row["draft"], row["downloaded"]) == (str(head), True) and row["size_bytes"] > 0
    assert specdec("run", "-p", "counting", "-n", "8", "hello")[0] == 0


@pytest.mark.slow
def test_a_bench_measures_a_head_at_every_k(specdec, folders, tmp_path):
    bare, head, _ = folders
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one two three\nseven eight\nlast words\n")
    file = tmp_path / "bench.json"
    asked = ("bench", "--target", bare, "--draft", head, "-k", "0-2", "--prompts", prompts, "-n", "16", "--raw")
    code, _, err = specdec(*asked, "--fixed-length", "--time-budget", "8s", "--export", file)
    assert code in (0, 130), err
    result = json.loads(file.read_text())
    drafted = [sample for sample in result["samples"] if sample["arm"]["k"]]
    assert {(sample["arm"]["contender"]["drafter"], sample["arm"]["k"]) for sample in drafted} == {
        ("mtp", 1),
        ("mtp", 2),
    }
    assert min(sample["draft_n_accepted"] / sample["draft_n"] for sample in drafted) > 0.5
    assert all(sample["round_draft_seconds"] > 0 for sample in drafted)


PACKED_WRONG = {
    "mtp.fc.weight": np.zeros((32, 8), np.uint32),
    "mtp.fc.scales": np.zeros((32, 3), np.float32),
    "mtp.fc.biases": np.zeros((32, 3), np.float32),
}
REFUSED = {
    "of another target": (lambda: part(random_head(counting_tensors()), True), 4, "guesses"),
    "of another size": (lambda: part(raw_tensors(), True), 4, "reads states of [64], and the target's have 32"),
    "that lacks a tensor": (
        lambda: {n: v for n, v in part(counting_tensors(), True).items() if "q_norm" not in n},
        3,
        "lacks 1 of 15 tensors, first layers.0.self_attn.q_norm.weight",
    ),
    "that is announced only": (
        lambda: {"mtp_extra.weight": np.zeros(3, np.float32)},
        3,
        "announces an MTP head (mtp_num_hidden_layers is 1), but none of its 1 weight files holds one",
    ),
    "in groups that fit no quantization": (
        lambda: part(counting_tensors(), True) | PACKED_WRONG,
        3,
        "stores fc in a quantization that mlx does not have",
    ),
}


@pytest.mark.parametrize("head", REFUSED)
def test_a_head_is_refused_in_two_lines(specdec, folders, tmp_path, head):
    tensors, code, words = REFUSED[head]
    folder = write_checkpoint(tmp_path / "other", tensors(), HEAD_CONFIG)
    found, message, hint = specdec.refused("run", "-q", "--target", folders[0], "--draft", folder, "hello")
    assert found == code and words in message and hint
