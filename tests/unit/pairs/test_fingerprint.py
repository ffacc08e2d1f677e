"""Fingerprints of a pair's files, for ranks and for what was tuned: another file changes its part, and no other one."""

import json
import shutil

import mlx.core as mx
import pytest

from fakes.models import swap_two_ids, tiny_folder
from specdec_cli.core.errors import Refused
from specdec_cli.models.checkpoint import ADAPTER
from specdec_cli.pairs import fingerprint, tuned
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fingerprint import fingerprints
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.pairs.tuned import RECORD, folder_named, require_bound, tuned_folder


@pytest.fixture
def root(tmp_path):
    tiny_folder(tmp_path / "target", seed=1)
    tiny_folder(tmp_path / "draft", seed=1, noise=0.05)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"num_layers": 1}')
    mx.save_safetensors(str(tmp_path / "adapter" / ADAPTER), {"a": mx.zeros((2, 2))})
    return tmp_path


def found(root):
    pair = Pair("p", *(str(root / name) for name in ("target", "draft")), draft_adapter=str(root / "adapter"))
    return fingerprints(find(PairSpec(pair)))


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def put(name, text):
    return lambda folder: (folder / name).write_text(text)


CHANGES = {
    "a weight": ("target", lambda folder: flip(folder / "model.safetensors", -20_000)),
    "the last weight": ("draft", lambda folder: flip(folder / "model.safetensors", -1)),
    "where answers end": ("target", put("generation_config.json", '{"eos_token_id": 9}')),
    "a scale": ("adapter", put("adapter_config.json", '{"num_layers": 1, "lora_parameters": {"scale": 2}}')),
    "its weights": ("adapter", lambda folder: flip(folder / ADAPTER, -1)),
    "ids": ("target tokenizer", lambda folder: swap(folder / "tokenizer.json")),
    "ids of the draft": ("draft tokenizer", lambda folder: swap(folder / "tokenizer.json")),
    "a template": ("target tokenizer", put("chat_template.jinja", "{{ messages }}")),
}


def swap(path):
    path.write_bytes(swap_two_ids(path.read_bytes()))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_shows_in_its_part_alone(change, root):
    before, (place, make) = found(root), CHANGES[change]
    folder, _, part = place.partition(" ")
    make(root / folder)
    after = found(root)
    assert before.keys() == after.keys() == {"the target", "the draft", "the adapter", "the tokenizer"}
    assert {name for name in before if before[name] != after[name]} == {f"the {part or folder}"}


def test_what_says_nothing_about_a_pair_changes_nothing(root):
    before = found(root)
    (root / "target" / "README.md").write_text("read me")
    (root / "adapter" / f"0000100_{ADAPTER}").write_bytes(b"an earlier one")
    assert found(root) == before


def test_of_a_large_file_the_header_and_samples_of_every_matrix_are_read(tmp_path, monkeypatch):
    """Each training of any matrix shows, and little of the file is read."""
    path = tmp_path / "large.safetensors"
    tensors = {str(i): mx.full((64, 64), i + 0.5) for i in range(20)}
    mx.save_safetensors(str(path), tensors)
    for name, value in {"WHOLE_BYTES": 1000, "BEGINNING_BYTES": 3000, "SAMPLES": 40, "SAMPLE_BYTES": 256}.items():
        monkeypatch.setattr(fingerprint, name, value)
    before = fingerprint._sha256([path])
    for name, value in tensors.items():
        mx.save_safetensors(str(path), tensors | {name: value * 1.5})
        assert fingerprint._sha256([path]) != before
    mx.save_safetensors(str(path), tensors, {"format": "another"})
    assert fingerprint._sha256([path]) != before


# What was tuned


@pytest.fixture(scope="module")
def models(tiny_pair):
    return find(PairSpec(Pair("tiny", *map(str, tiny_pair), k=3), "model")).checkpoints


@pytest.mark.parametrize("part", ["target", "draft", "tokenizer"])
def test_each_of_the_weights_and_the_tokenizer_binds(models, tmp_path, part):
    """Beneath another draft an adapter says something else. Records that are torn are in `laws/test_broken_bytes`."""
    folder = tuned_folder() / "mine"
    folder.mkdir(parents=True)
    with pytest.raises(Refused) as refusal:
        require_bound(folder, *models)
    assert refusal.value.hint.startswith("specdec rm mine ") and folder_named("mine", None) == folder
    assert not any(folder_named(name, None) for name in (".", "..", ".training-1", "other"))
    (folder / RECORD).write_text(json.dumps({"sha256": tuned.fingerprints(*models)}))
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
