"""Models that other programs keep: found in each one's own layout, never changed, and never in the way."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from fakes.hub_cache import COMMIT, NAME, OTHER_COMMIT, PULL, place
from specdec_cli.core.errors import NotAvailable
from specdec_cli.hub import GGUF, elsewhere, locate, model_folders, models_here
from specdec_cli.hub.places import PLACES

pytestmark = pytest.mark.usefixtures("cache")

MLX = ("config.json", "model.safetensors", "tokenizer.json")
QWEN = "mlx-community/Qwen3-8B-4bit"


def lay(folder: Path, *names: str) -> Path:
    """A model's folder with these files, of ten bytes each."""
    folder.mkdir(parents=True)
    for name in names or MLX:
        (folder / name).write_bytes(b"0123456789")
    return folder


def usual(home: Path) -> Path:
    return home / ".lmstudio/models"


def older(home: Path) -> Path:
    return home / ".cache/lm-studio/models"


def pointed(home: Path) -> Path:
    (home / ".lmstudio-home-pointer").write_text(f"{home}/Disk/LM Studio\n")
    return home / "Disk/LM Studio/models"


def chosen(home: Path) -> Path:
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio/settings.json").write_text(json.dumps({"downloadsFolder": f"{home}/Volumes/Big"}))
    return home / "Volumes/Big"


def default_cache(home: Path) -> Path:
    return home / ".cache/huggingface/hub"


def moved_cache(home: Path) -> Path:
    os.environ["HF_HOME"] = str(home / "elsewhere")
    return home / "elsewhere/hub"


def named(home: Path) -> Path:
    os.environ["SPECDEC_MODEL_FOLDERS"] = os.pathsep.join(["/nowhere", "", "~/My models"])
    return home / "My models"


@pytest.fixture(autouse=True)
def home(monkeypatch):
    for name in ("HF_HOME", "SPECDEC_MODEL_FOLDERS", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")  # and put back, whatever a test sets
    return Path.home()


def shown() -> list[tuple[str, str, str]]:
    return [(model.name, model.place, model.problem) for model in models_here()]


@pytest.mark.parametrize("root", [usual, older, pointed, chosen, named])
def test_a_model_of_publisher_and_name_is_found_by_its_id(home, root):
    assert (elsewhere(QWEN), models_here()) == (None, [])
    folder = lay(root(home) / QWEN)
    (found,) = models_here()
    assert (found.name, found.short, found.target, found.folder) == (QWEN, "Qwen3-8B-4bit", QWEN, folder)
    assert (found.place, found.size_bytes) == ("your folder" if root is named else "LM Studio", 10)
    assert elsewhere(QWEN) == locate(QWEN) == folder
    with pytest.raises(NotAvailable):  # which commit it is, nobody knows
        locate(QWEN, COMMIT)


@pytest.mark.parametrize("root", [default_cache, moved_cache, named])
def test_another_hub_cache_gives_the_commit_of_main_and_not_a_stray_one(home, root):
    repository = root(home) / "models--org--tiny"
    folder, stray = (lay(repository / "snapshots" / commit) for commit in (COMMIT, OTHER_COMMIT))
    assert elsewhere(NAME) is None  # nothing says which
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    assert elsewhere(NAME) == locate(NAME) == folder != stray
    assert [model.folder for model in models_here()] == [folder]


def test_our_cache_comes_first_and_another_program_mends_what_it_lacks(home, cache):
    kept = lay(usual(home) / NAME)
    snapshot = place(cache)
    assert (locate(NAME), elsewhere(NAME), shown()) == (snapshot, None, [(NAME, "the model cache", "")])
    (snapshot / "model.safetensors").unlink()
    assert (locate(NAME), elsewhere(NAME), shown()) == (kept, kept, [(NAME, "LM Studio", "")])


def test_a_cache_of_ours_that_was_altered_is_no_other_cache(home, cache, monkeypatch):
    """Else what is not what was pulled would be taken after all."""
    default_cache(home).parent.mkdir(parents=True)
    default_cache(home).symlink_to(cache)
    snapshot = place(cache)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").write_text('{"evil": 1}')
    with pytest.raises(NotAvailable, match="is not what was pulled"):
        locate(NAME)


def test_a_folder_of_ones_own_may_hold_models_itself_or_be_one(home):
    folder = lay(named(home) / "mine")
    (found,) = models_here()
    assert (found.name, found.target) == ("mine", str(folder))
    assert model_folders(str(folder)) == [folder]
    os.environ["SPECDEC_MODEL_FOLDERS"] = str(folder)
    assert [model.target for model in models_here()] == [str(folder)]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (MLX, ""),
        (("config.json", "model-00002-of-00002.safetensors"), "1 of 2 weight files missing"),
        (("config.json", *(f"model-0000{n}-of-00002.safetensors" for n in (1, 2))), ""),
        (("model.safetensors",), "config.json is missing"),
        (("Qwen3-8B-Q4_K_M.gguf", "mmproj.gguf"), GGUF),
    ],
)
def test_half_models_and_other_formats_are_told_apart_and_only_whole_ones_loaded(home, files, problem):
    folder = lay(usual(home) / QWEN, *files)
    assert shown() == [(QWEN, "LM Studio", problem)]
    assert elsewhere(QWEN) == (None if problem else folder)


def test_without_weights_or_with_other_peoples_code_there_is_no_model(home):
    lay(usual(home) / "org/config-only", "config.json", "pytorch_model.bin")
    assert models_here() == []


def layer(**more) -> str:
    return json.dumps({"layers": [7, {"mediaType": "application/vnd.ollama.image.model", "size": 5_200} | more]})


@pytest.mark.parametrize("variable", ["", "~/blobs and more"])
def test_models_of_ollama_are_named_as_there_and_known_as_gguf(home, variable):
    os.environ["OLLAMA_MODELS"] = variable
    root = home / (variable[2:] or ".ollama/models") / "manifests/registry.ollama.ai"
    for name, text in {
        "library/qwen3/8b": layer(),
        "library/llama3.2/latest": layer(),
        "me/own/v1": layer(),
        "library/list/latest": "[]",
        "library/sizeless/latest": layer(size="big"),
        "library/none/latest": '{"layers": null}',
        "library/broken/latest": "{",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = {model.name: model.size_bytes for model in models_here()}
    assert found == {"llama3.2": 5_200, "qwen3:8b": 5_200, "sizeless": 0, "me/own:v1": 5_200}
    assert {(model.place, model.problem) for model in models_here()} == {("ollama", GGUF)}


def test_links_in_circles_and_to_nowhere_end_and_one_to_another_disk_is_followed(home):
    root, disk = usual(home), lay(home / "disk/model")
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


def test_what_cannot_be_read_or_shown_hides_no_other_model(home, monkeypatch):
    root = usual(home)
    for name in (QWEN, "org/\x1b[31mred", "o\nrg/model", "org/.hidden", "closed/model"):
        lay(root / name)
    real = os.scandir

    def scandir(folder):
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert shown() == [(QWEN, "LM Studio", "")]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b'{"downloadsFolder": 7}', b'{"downloadsFolder": "models"}', b"\xff"]
)
def test_broken_settings_leave_the_usual_folder(home, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path / "models/org/of-the-working-folder")  # a relative path would be one in there
    folder = lay(usual(home) / QWEN)
    (home / ".lmstudio/settings.json").write_bytes(text)
    (home / ".lmstudio-home-pointer").write_bytes(text)
    (tmp_path / "settings.json").write_text(json.dumps({"downloadsFolder": str(tmp_path / "models")}))
    assert [model.folder for model in models_here()] == [folder]


def test_a_name_leads_to_no_place_outside_the_folders(home):
    lay(home / ".lmstudio/secret")
    usual(home).mkdir()
    for name in ("../secret", "org/../../secret", f"{home}/.lmstudio/secret", "../..", ""):
        assert elsewhere(name) is None
    with pytest.raises(NotAvailable) as error:
        locate(NAME)
    assert error.value.hint == PULL


@pytest.mark.slow  # it makes the folders
def test_ten_thousand_folders_cost_less_than_a_second(home):
    for number in range(10_000):
        (usual(home) / f"org{number // 100}/model{number}").mkdir(parents=True)
    lay(usual(home) / QWEN)
    before = time.process_time()
    assert [model.name for model in models_here()] == [QWEN]
    assert time.process_time() - before < 1


def test_a_place_is_a_row(home, monkeypatch):
    folder = lay(home / "toys/org/toy")
    row = ("a toy", lambda: [home / "toys"], PLACES[0][2])
    monkeypatch.setattr("specdec_cli.hub.places.PLACES", (*PLACES, row))
    assert (shown(), locate("org/toy")) == ([("org/toy", "a toy", "")], folder)
