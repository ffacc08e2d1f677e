"""Heads and assistants as a person meets them: --draft FOLDER, check, a family of one's own; not what is refused."""

import json
import re

import pytest

from fakes.counting import HEAD_CONFIG, counting_tensors
from fakes.counting import head_or_trunk as part
from fakes.raw_qwen import write_checkpoint
from specdec_cli.apps.pairs.pull import _keep_head
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.engine.heads.mtp import QWEN_BUILD, Build
from specdec_cli.hub import HubSnapshot, heads_folder
from specdec_cli.models import heads
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head, is_for_a_head, is_head_only, read_head
from specdec_cli.pairs.files import DraftHead

TOY = Build(QWEN_BUILD.layer)
TOY_PARTS = {"mix": "fc", "token": "pre_fc_norm_embedding", "state": "pre_fc_norm_hidden", "last": "norm"}
TOY_FAMILY = heads.HeadFamily(
    "Toy", f"{__name__}:TOY", frozenset({"qwen3_5_text"}), re.compile(r"guess\.\d+\."), "mix.", TOY_PARTS
)


def test_a_family_of_heads_is_one_row(specdec, counting_folders, tmp_path, monkeypatch):
    """A head under names that only the toy's row knows; without the row it is no head."""
    names = {f"mtp.{own}.weight": f"guess.0.{toy}.weight" for toy, own in TOY_PARTS.items()}
    # The counting head's norms are stored less 1, as Qwen's are; those of other families are not.
    tensors = {n: v + 1 if v.ndim == 1 else v for n, v in part(counting_tensors(), True).items()}
    stored = {names.get(name, name.replace("mtp.layers.0", "guess.0")): tensors[name] for name in tensors}
    head = write_checkpoint(tmp_path / "toy", stored, HEAD_CONFIG)
    asked = ("--target", counting_folders[0], "--draft", head, "--json")
    assert specdec("check", *asked)[0] != 0
    monkeypatch.setattr(heads, "FAMILIES", (*heads.FAMILIES, TOY_FAMILY))
    assert json.loads(specdec("check", *asked)[1])["head"]["tensors"] == len(stored)
    drafted, plain = (specdec("run", *asked, "-k", k, "-n", "16", "hello")[1].splitlines()[-1] for k in ("3", "0"))
    assert json.loads(drafted)["stats"]["draft_acceptance_rate"] > 0.8
    assert json.loads(drafted)["tokens"] == json.loads(plain)["tokens"]


def test_an_assistant_is_known_by_its_configuration_and_tensors(gemma_folders):
    target, assistant = gemma_folders
    assert is_for_a_head(assistant, "m") and is_head_only(assistant) and not is_head_only(target)
    assert find_head(read_checkpoint(target, "t")) is None
    files = read_head(assistant, "m")
    assert (files.family.kind, files.title) == ("gemma4_assistant", "the assistant of m")
    # It keeps nothing, and reads one state however much of a context drafts may read.
    assert (files.cache_bytes(1000), files.recent, files.reading(100).recent) == (0, 1, 1)
    rows = files.tensors["model.embed_tokens.weight"].size_bytes
    assert files.gathered_bytes == rows - rows * 12 // 37


def test_a_head_must_fit_on_the_disk_of_heads(counting_folders, monkeypatch):
    """It was fetched until that disk was full."""
    monkeypatch.setattr("specdec_cli.hub.download.free_bytes", lambda folder: 5 if folder == heads_folder() else 10**12)
    draft = DraftHead(read_head(counting_folders[1], "m"))
    with pytest.raises(DoesNotFit, match=rf"^org/t needs 60 kB, and the disk of {heads_folder()} has 5 B free"):
        _keep_head(draft, HubSnapshot("org/t", 40 * "a", ()), yes=True)
