"""What was tuned is bound to the weights that it was tuned beside, or it is refused."""

from __future__ import annotations

import json
import shutil

import pytest

from specdec_cli.core.errors import Refused
from specdec_cli.pairs.files import find
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.pairs.tuned import RECORD, fingerprints, folder_named, require_bound, tuned_folder


@pytest.fixture(scope="module")
def models(tiny_pair):
    return find(PairSpec(Pair("tiny", *map(str, tiny_pair), k=3), "model")).checkpoints


def tuned(text=None):
    folder = tuned_folder() / "mine"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / RECORD).write_text(text)
    return folder


@pytest.mark.parametrize(
    "text", [None, "", '{"sha256": {"tar', "[]", "{}", '{"sha256": {}}', '{"sha256": {"target": null}}', "\0" * 400]
)
def test_without_a_whole_record_nothing_tuned_is_used_and_rm_knows_it(models, text):
    """A missing, empty or torn record switched the check off without a word."""
    folder = tuned(text)
    with pytest.raises(Refused, match=r"mine/tuned.json does not say which weights mine was tuned for") as refusal:
        require_bound(folder, *models)
    assert refusal.value.hint.startswith("specdec rm mine ") and folder_named("mine", None) == folder
    assert not any(folder_named(name, None) for name in (".", "..", ".training-1", "other"))


@pytest.mark.parametrize("part", ["target", "draft", "tokenizer"])
def test_each_of_the_weights_and_the_tokenizer_binds(models, tmp_path, part):
    """Beneath another draft an adapter says something else."""
    record = fingerprints(*models)
    folder = tuned(json.dumps({"sha256": record}))
    require_bound(folder, *models)
    paths = [shutil.copytree(model.folder, tmp_path / name) for model, name in zip(models, "td", strict=True)]
    file = {"target": paths[0] / "model.safetensors", "draft": paths[1] / "model.safetensors"}.get(part)
    file = file or paths[0] / "tokenizer.json"
    content = bytearray(file.read_bytes())
    content = bytearray(b" ") + content if part == "tokenizer" else content[:-1] + bytes([content[-1] ^ 1])
    file.write_bytes(content)
    others = find(PairSpec(Pair("tiny", *map(str, paths), k=3), "model")).checkpoints
    with pytest.raises(Refused, match=f"mine was tuned for another {part}: sha256 "):
        require_bound(folder, *others)
