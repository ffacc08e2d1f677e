"""Indices and files as people have them: what is needed and there decides, not what files are called."""

import json
import shutil

import mlx.core as mx
import pytest

from fakes.models import TINY, tiny_folder
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.safetensors import INDEX
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head
from specdec_cli.models.tokenizer import Tokenizer

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
LAYERS = TINY["num_hidden_layers"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "m")


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "m")


def place(folder, others, own="model.safetensors", prefix=""):
    """An index of the model's own tensors, in the file `own`, and of `others`: tensor -> file."""
    tensors = mx.load(str(folder / "model.safetensors"))
    if own != "model.safetensors":
        (folder / "model.safetensors").rename(folder / own)
    placed = {prefix + name: own for name in tensors} | others
    (folder / INDEX).write_text(json.dumps({"weight_map": placed}))
    return list(tensors)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("file", ["mtp.safetensors", "mtp/weights.safetensors", "head.safetensors"])
def test_a_head_in_a_file_of_its_own_leaves_the_target_whole(folder, file, there):
    """jundot/omlx#2062: an export of MTPLX lacked "1 of 2 weight files", though every file was there."""
    place(folder, {"mtp.fc.weight": file})
    if there:
        (folder / file).parent.mkdir(exist_ok=True)
        mx.save_safetensors(str(folder / file), {"mtp.fc.weight": mx.zeros((4, 8))})
    assert read_checkpoint(folder, "m").weights == (folder / "model.safetensors",)


BESIDE = ["mtp.layers.0.mlp.up_proj.weight", f"model.layers.{LAYERS}.eh_proj.weight", "vision_tower.patch.weight",
          "model.visual.blocks.0.norm.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"]  # fmt: skip


@pytest.mark.parametrize("tensor", BESIDE)
def test_an_absent_file_of_what_no_text_needs_leaves_the_target_whole(folder, tensor):
    """The same for a head or a tower in a file that is called as the model's are."""
    place(folder, {tensor: "model-extra.safetensors"})
    assert read_checkpoint(folder, "m").weights == (folder / "model.safetensors",)


@pytest.mark.parametrize("prefix", ["", "language_model."])
def test_an_index_that_moves_tensors_into_an_absent_file_is_stale_where_all_of_them_are_here(folder, prefix):
    """A model was merged into its first file, the old index kept: it "lacks 1 of 2", though mlx-lm loads it."""
    names = place(folder, {}, own=FIRST)
    placed = {prefix + name: (FIRST, SECOND)[number % 2] for number, name in enumerate(names)}
    (folder / INDEX).write_text(json.dumps({"weight_map": placed}))
    assert read_checkpoint(folder, "m").weights == (folder / FIRST,)


def test_what_an_absent_file_had_may_lie_in_one_that_the_index_does_not_name(folder):
    names = place(folder, {}, own="model.safetensors")
    mx.save_safetensors(str(folder / FIRST), {names[0]: mx.zeros((1,))})
    placed = {name: FIRST if name == names[0] else SECOND for name in names}
    (folder / INDEX).write_text(json.dumps({"weight_map": placed}))
    assert read_checkpoint(folder, "m").weights == (folder / FIRST, folder / "model.safetensors")


@pytest.mark.parametrize(
    "tensor", ["model.layers.0.mlp.lost.weight", f"model.layers.{LAYERS - 1}.lost", "lm_head.lost"]
)
def test_a_tensor_that_is_needed_and_nowhere_keeps_a_model_incomplete(folder, tensor):
    place(folder, {tensor: SECOND, "mtp.fc.weight": "mtp.safetensors"})
    with pytest.raises(NotAvailable, match=f"lacks 1 of 2 weight files, first {SECOND}"):
        read_checkpoint(folder, "m")


def test_weights_under_a_name_that_mlx_lm_does_not_look_for_are_told(folder):
    place(folder, {}, own="weights.safetensors")
    with pytest.raises(NotAvailable, match=r"holds only weights\.safetensors, and model\*\.safetensors is needed"):
        read_checkpoint(folder, "m")


POINTERS = ["model.safetensors", "tokenizer.json", "config.json", INDEX, "tokenizer.model", "mtp.safetensors"]


@pytest.mark.parametrize("file", POINTERS)
def test_a_pointer_of_git_lfs_is_named_with_what_fetches_the_file(folder, file):
    """A clone without git-lfs: "header too large"."""
    if file == "tokenizer.model":
        (folder / "tokenizer.json").unlink()
    (folder / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 99\n")
    with pytest.raises(NotAvailable, match=f"{file} is a git-lfs pointer of 65 bytes") as caught:
        checkpoint = read_checkpoint(folder, "m")
        find_head(checkpoint)
        Tokenizer.of(checkpoint)
    assert caught.value.hint == f"git -C {folder} lfs pull"
