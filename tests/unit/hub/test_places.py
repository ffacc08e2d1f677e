"""Models that other programs keep: found in each one's own layout, never changed, and never in the way."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from fakes.hub_cache import COMMIT, NAME, OTHER_COMMIT, PULL, place
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.safetensors import INDEX
from specdec_cli.hub import GGUF, elsewhere, locate, models_here
from specdec_cli.hub.places import PLACES
from specdec_cli.system.config import config_file, model_folders

pytestmark = pytest.mark.usefixtures("cache")

MLX = ("config.json", "model.safetensors", "tokenizer.json")
QWEN = "mlx-community/Qwen3-8B-4bit"


def lay(folder: Path, *names: str) -> Path:
    """A model's folder with these files, of ten bytes each."""
    folder.mkdir(parents=True)
    for name in names or MLX:
        (folder / name).write_bytes(b"0123456789")
    return folder


# Where a program keeps models, the file that says so, and the variable.
LAYOUTS = {
    "usual": (".lmstudio/models", {}, {}),
    "older": (".cache/lm-studio/models", {}, {}),
    "pointed": ("Disk/LM Studio/models", {".lmstudio-home-pointer": "HOME/Disk/LM Studio\n"}, {}),
    "pointed by Windows' editors": ("Disk/models", {".lmstudio-home-pointer": "\ufeffHOME/Disk\n"}, {}),
    "chosen": ("Big", {".lmstudio/settings.json": '{"downloadsFolder": "HOME/Big"}'}, {}),
    "named": ("My models", {}, {"SPECDEC_MODEL_FOLDERS": "/nowhere::~/My models"}),
}
DEFAULT, NAMED = (".cache/huggingface/hub", {}, {}), LAYOUTS["named"]


@pytest.fixture(autouse=True)
def home(monkeypatch):
    for name in ("HF_HOME", "SPECDEC_MODEL_FOLDERS", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Path.home()


@pytest.fixture
def root(home, monkeypatch, request):
    """The folder of models in the layout that is asked for."""
    folder, files, variables = getattr(request, "param", LAYOUTS["usual"])
    for name, text in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text.replace("HOME", str(home)))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return home / folder


def shown() -> list[tuple[str, str, str]]:
    return [(model.name, model.place, model.problem) for model in models_here()]


@pytest.mark.parametrize("root", LAYOUTS.values(), ids=LAYOUTS, indirect=True)
def test_a_model_of_publisher_and_name_is_found_by_its_id(root):
    assert (elsewhere(QWEN), models_here()) == (None, [])
    folder = lay(root / QWEN)
    (found,) = models_here()
    assert (found.name, found.short, found.target, found.folder) == (QWEN, "Qwen3-8B-4bit", QWEN, folder)
    assert (found.place, found.size_bytes) == ("your folder" if root.name == "My models" else "LM Studio", 10)
    assert elsewhere(QWEN) == locate(QWEN) == folder
    with pytest.raises(NotAvailable):  # which commit it is, nobody knows
        locate(QWEN, COMMIT)


@pytest.mark.parametrize("root", [DEFAULT, NAMED, ("disk/hub", {}, {"HF_HOME": "~/disk"})], indirect=True)
def test_another_hub_cache_gives_the_commit_of_main_and_not_a_stray_one(root):
    repository = root / "models--org--tiny"
    folder, stray = (lay(repository / "snapshots" / commit) for commit in (COMMIT, OTHER_COMMIT))
    assert elsewhere(NAME) is None  # nothing says which
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    assert elsewhere(NAME) == locate(NAME) == folder != stray
    assert [model.folder for model in models_here()] == [folder]


def test_our_cache_comes_first_and_another_program_mends_what_it_lacks(root, cache):
    kept = lay(root / NAME)
    snapshot = place(cache)
    assert (locate(NAME), elsewhere(NAME), shown()) == (snapshot, None, [(NAME, "the model cache", "")])
    (snapshot / "model.safetensors").unlink()
    assert (locate(NAME), elsewhere(NAME), shown()) == (kept, kept, [(NAME, "LM Studio", "")])


@pytest.mark.parametrize("root", [DEFAULT], indirect=True)
def test_a_cache_of_ours_that_was_altered_is_no_other_cache(root, cache):
    """Else what is not what was pulled would be taken after all."""
    root.parent.mkdir(parents=True)
    root.symlink_to(cache)
    snapshot = place(cache)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").write_text('{"evil": 1}')
    with pytest.raises(NotAvailable, match="is not what was pulled"):
        locate(NAME)


@pytest.mark.parametrize("root", [NAMED], indirect=True)
def test_a_folder_of_ones_own_may_hold_models_itself_or_be_one(root, monkeypatch):
    folder = lay(root / "mine")
    assert [(model.name, model.target) for model in models_here()] == [("mine", str(folder))]
    monkeypatch.setenv("SPECDEC_MODEL_FOLDERS", str(folder))
    assert [(model.name, model.target) for model in models_here()] == [("mine", str(folder))]
    assert model_folders() == (folder,)
    monkeypatch.delenv("SPECDEC_MODEL_FOLDERS")
    config_file().parent.mkdir(parents=True, exist_ok=True)
    config_file().write_text(f"model_folders = ['{folder}']\n")
    assert model_folders() == (folder,) and models_here()[0].target == str(folder)


SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
HOLDS = [
    (MLX, ""), (["config.json", *SHARDS], ""), (["config.json", SHARDS[1]], "1 of 2 weight files missing"),
    (["model.safetensors"], "config.json is missing"), (["Qwen3-8B-Q4_K_M.gguf", "mmproj.gguf"], GGUF),
]  # fmt: skip


@pytest.mark.parametrize(("files", "problem"), HOLDS)
def test_half_models_and_other_formats_are_told_apart_and_only_whole_ones_loaded(root, files, problem):
    lay(root / "org/no-weights", "config.json", "pytorch_model.bin")
    folder = lay(root / QWEN, *files)
    assert shown() == [(QWEN, "LM Studio", problem)]
    assert elsewhere(QWEN) == (None if problem else folder)


def header(*tensors: str) -> bytes:
    """A safetensors file with these tensors, of no bytes."""
    text = json.dumps({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in tensors}).encode()
    return len(text).to_bytes(8, "little") + text


LACKS = "1 of 2 weight files missing"
# The tensor that an index places in an absent second shard, beside `a` in the first; what that holds; what is missing.
STALE = [
    ("b", header("a", "b"), ""), ("model.b", header("a", "b"), ""), ("vision_tower.b", header("a"), ""),
    ("layers.2.eh_proj", header("a"), ""), ("layers.1.b", header("a"), LACKS), ("b", b"damaged", LACKS),
    ("mtp.layers.0.mlp.up_proj", header("a"), ""), ("model.visual.blocks.0.norm", header("a"), ""),
    ("language_model.b", header("a", "b"), ""), ("layers.0.self_attn.rotary_emb.inv_freq", header("a"), ""),
    ("lm_head.b", header("a"), LACKS),
]  # fmt: skip


@pytest.mark.parametrize(("tensor", "first", "problem"), STALE)
@pytest.mark.parametrize("ours", [True, False])
def test_an_index_that_names_an_absent_shard_is_judged_by_what_the_headers_hold(
    root, cache, tensor, first, problem, ours
):
    """It was "1 of 2 weight files missing", though the folder's path loads: names were counted, not tensors."""
    index = json.dumps({"weight_map": {"a": SHARDS[0], tensor: SHARDS[1]}}).encode()
    config = b'{"text_config": {"num_hidden_layers": 2}}'
    files = {"config.json": config, INDEX: index, SHARDS[0]: first}
    if ours:
        folder, name, kept = place(cache, files, compared=False), NAME, "the model cache"
    else:
        folder, name, kept = lay(root / QWEN, *files), QWEN, "LM Studio"
        for file, data in files.items():
            (folder / file).write_bytes(data)
    assert shown() == [(name, kept, problem)]
    if problem:
        with pytest.raises(NotAvailable):
            locate(name)
    else:
        assert locate(name) == folder


def test_shards_that_the_names_count_as_whole_lack_what_the_index_places_elsewhere(root):
    folder = lay(root / QWEN, "config.json", *SHARDS)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": SHARDS[0], "b": "model-00003-of-00003.safetensors"}}))
    assert shown() == [(QWEN, "LM Studio", LACKS)] and elsewhere(QWEN) is None


LOOSE = [
    ["x.gguf"], ["mmproj.gguf", "Qwen3-8B-Q4_K_M.gguf"], ["model.safetensors"], ["config.json", "model.safetensors"],
    ["model-00001-of-00002.safetensors"],
]  # fmt: skip


@pytest.mark.parametrize("loose", LOOSE)
@pytest.mark.parametrize("beside", ["", "mlx-community"])
def test_loose_files_hide_no_model_below_them(root, loose, beside):
    """lmstudio-bug-tracker#406: x.gguf beside the publishers' folders was all that was listed."""
    lay(root / QWEN)
    for name in loose:
        (root / beside / name).write_bytes(b"0123456789")
    found = {model.name: model for model in models_here()}
    assert found.pop(QWEN).folder == root / QWEN
    assert list(found) == [beside or root.name] and elsewhere(QWEN) == root / QWEN


def test_a_part_of_a_model_is_no_model_by_itself(root):
    lay(root / QWEN)
    for part, *files in (["mtp", "model.safetensors"], ["gguf", "x.gguf"], ["onnx", "config.json"]):
        lay(root / QWEN / part, *files)
    lay(root / "org/whole/gguf", "x.gguf")
    lay(root / "org/half", "model-00001-of-00002.safetensors")
    lay(root / "org/half/mtp", "model.safetensors")
    assert shown()[0] == (QWEN, "LM Studio", "") and len(shown()) == 2


def test_models_of_ollama_are_named_as_there_and_known_as_gguf(home, monkeypatch):
    weights = {"mediaType": "application/vnd.ollama.image.model", "size": 5_200}
    manifests = {
        "library/qwen3/8b": [7, weights], "library/llama3.2/latest": [{"mediaType": "template"}, weights],
        "me/own/v1": [weights], "library/sizeless/latest": [weights | {"size": "big"}], "library/none/latest": None,
    }  # fmt: skip
    for folder, variable in ((home / ".ollama/models", ""), (home / "blobs", "~/blobs")):
        monkeypatch.setenv("OLLAMA_MODELS", variable)
        for name, layers in manifests.items():
            file = folder / "manifests/registry.ollama.ai" / name
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps({"layers": layers}))
        (file.parent / "broken").write_text("{")
        found = {model.name: model.size_bytes for model in models_here()}
        assert found == {"llama3.2": 5_200, "qwen3:8b": 5_200, "sizeless": 0, "me/own:v1": 5_200}
        assert {(model.place, model.problem) for model in models_here()} == {("ollama", GGUF)}


def test_links_in_circles_and_to_nowhere_end_and_one_to_another_disk_is_followed(home, root):
    disk = lay(home / "disk/model")
    lay(root / QWEN)
    (root / "org").mkdir()
    (root / "org/moved").symlink_to(disk)
    (root / "org/up").symlink_to(root)
    (root / "loop").symlink_to(root / "loop")
    (root / "gone").symlink_to(home / "nowhere")
    lay(root / "org/dangling", "config.json")
    (root / "org/dangling/model.safetensors").symlink_to(root / "loop")
    assert sorted(shown()) == [(QWEN, "LM Studio", ""), ("org/moved", "LM Studio", "")]
    assert locate("org/moved") == root / "org/moved"


def test_what_cannot_be_read_or_shown_hides_no_other_model(root, monkeypatch):
    for name in (QWEN, "org/\x1b[31mred", "o\nrg/model", "org/.hidden", "closed/model"):
        lay(root / name)
    real = os.scandir

    def scandir(folder):
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert shown() == [(QWEN, "LM Studio", "")]


BROKEN = [b"", b"{", b"[1]", b'{"downloadsFolder": 7}', b'{"downloadsFolder": "a"}', b"\xff"]
# A NUL in LM Studio's settings ended `pairs` and every short name with "failed unexpectedly".
BROKEN += [b'{"downloadsFolder": "/a\\u0000b"}', b'{"downloadsFolder": "/a\\ud800b"}', b"/a\0b"]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_settings_leave_the_usual_folder(home, root, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path / "models/org/of-the-working-folder")  # a relative path would be one in there
    folder = lay(root / QWEN)
    (home / ".lmstudio/settings.json").write_bytes(text)
    (home / ".lmstudio-home-pointer").write_bytes(text)
    (tmp_path / "settings.json").write_text(json.dumps({"downloadsFolder": str(tmp_path / "models")}))
    assert [model.folder for model in models_here()] == [folder] and elsewhere(QWEN) == folder


def test_a_name_leads_to_no_place_outside_the_folders(home, root):
    lay(home / ".lmstudio/secret")
    root.mkdir()
    for name in ("../secret", "org/../../secret", f"{home}/.lmstudio/secret", "../..", ""):
        assert elsewhere(name) is None
    with pytest.raises(NotAvailable) as error:
        locate(NAME)
    assert error.value.hint == PULL


@pytest.mark.slow  # it makes the folders
def test_ten_thousand_folders_cost_less_than_a_second(root):
    for number in range(10_000):
        (root / f"org{number // 100}/model{number}").mkdir(parents=True)
    lay(root / QWEN)
    before = time.process_time()
    assert [model.name for model in models_here()] == [QWEN]
    assert time.process_time() - before < 1


def test_a_place_is_a_row(home, monkeypatch):
    folder = lay(home / "toys/org/toy")
    row = ("a toy", lambda: [home / "toys"], PLACES[0][2])
    monkeypatch.setattr("specdec_cli.hub.places.PLACES", (*PLACES, row))
    assert (shown(), locate("org/toy")) == ([("org/toy", "a toy", "")], folder)
