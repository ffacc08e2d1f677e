"""What users of ollama, mlx-lm, LM Studio and llama.cpp bring: their models, and the commands they know by heart."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from fakes.models import TINY, tiny_folder
from specdec_cli.command.habits import ALONE, BEFORE, COMMANDS, INSTEAD, OPTIONS, SAME, names_a_model, translate
from specdec_cli.command.table import ROWS, require_values
from specdec_cli.core.errors import UsageError
from specdec_cli.main import app

BIG, SMALL = "mlx-community/Llama-3.2-3B-Instruct-4bit", "mlx-community/Llama-3.2-1B-Instruct-4bit"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """LM Studio's folder with the two models of the pair llama-3b, or of its names."""
    root = tmp_path_factory.mktemp("kept")
    tiny_folder(root / BIG, TINY | {"num_hidden_layers": 16, "intermediate_size": 512}, seed=1)
    tiny_folder(root / SMALL, TINY | {"num_hidden_layers": 1}, seed=1)
    return root


@pytest.fixture
def models(specdec, kept, tmp_path):
    """The same in this home, as LM Studio's folder."""
    shutil.copytree(kept, tmp_path / ".lmstudio/models")
    return tmp_path / ".lmstudio/models"


def gguf(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "Qwen3-8B-Q4_K_M.gguf").write_bytes(b"GGUF\3\0\0\0")


# Their models


def test_pairs_lists_models_of_others_with_where_they_lie(specdec, models):
    gguf(models / "lmstudio-community/Qwen3-8B-GGUF")
    (models / SMALL / "model.safetensors").rename(models / SMALL / "model-00001-of-00003.safetensors")
    out = " ".join(specdec("pairs")[1].split())
    assert "here, of no listed pair: specdec run -p NAME Llama-3.2-3B-Instruct-4bit" in out
    assert f" LM Studio ~/.lmstudio/models/{BIG}" in out
    assert "Qwen3-8B-GGUF 8 B LM Studio GGUF: the same model for MLX: specdec pull qwen3-8b" in out
    assert "LM Studio 2 of 3 weight files missing" in out
    rows = {row["name"]: row for row in json.loads(specdec("pairs", "--json")[1])}
    found = rows["Llama-3.2-3B-Instruct-4bit"]
    assert [found[key] for key in ("target", "draft", "downloaded", "source")] == [BIG, None, True, "LM Studio"]
    assert found["folder"] == str(models / BIG)
    assert (rows["Qwen3-8B-GGUF"]["downloaded"], rows["demo"]["folder"]) == (False, None)


def test_a_listed_pair_of_two_such_models_is_ready_and_its_models_are_not_listed_again(specdec, models):
    """Its commits are pinned, and say what a pull brings."""
    ready = {row["name"]: row["downloaded"] for row in json.loads(specdec("pairs", "--json")[1])}
    assert ready["llama-3b"] and not ready["llama-8b"] and "Llama-3.2-3B-Instruct-4bit" not in ready
    assert specdec("check", "llama-3b", "--offline")[0] == 0


SHORT = "Llama-3.2-3B-Instruct-4bit"


@pytest.mark.parametrize("words", [["-m", BIG], [BIG], ["-m", SHORT], [SHORT.lower()], [f"hf.co/{BIG}"]], ids=" ".join)
def test_an_id_a_short_name_and_an_address_run_it_with_the_draft_that_is_listed(specdec, models, words):
    code, out, err = specdec("run", *words, "x", "--raw", "-n", "3", "--json")
    start = json.loads(out.splitlines()[0])
    assert (code, start["target"], start["draft"], err) == (0, BIG, SMALL, "")


def test_without_a_listed_one_a_draft_of_another_program_is_found_by_its_tokenizer(specdec, models):
    (models / "org").mkdir()
    (models / BIG).rename(models / "org/big")
    code, _, err = specdec("run", "big", "x", "--raw", "-n", "3")
    said = rf"draft {SMALL}: in LM Studio, \d+ times smaller, and its tokenizer agrees\n"
    assert code == 0 and re.match(said, err)


def test_pull_downloads_and_rm_removes_nothing_of_another_program(specdec, models):
    gguf(models / "org/Qwen3-8B-GGUF")

    def tree():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in models.rglob("*")}

    before = tree()
    code, _, err = specdec("pull", "--target", BIG, "--draft", SMALL, "--offline")
    assert code == 0 and "nothing to download" in err
    gone = "is not in the model cache: it belongs to LM Studio; specdec deletes nothing there"
    for name in (BIG, "Llama-3.2-3B-Instruct-4bit", "llama-3b", str(models / BIG), "Qwen3-8B-GGUF"):
        code, message, hint = specdec.refused("rm", "--yes", name)
        assert (code, message) == (3, f"{BIG if name == 'llama-3b' else name} {gone}")
        assert hint == "specdec pairs shows where it lies"
    assert tree() == before


@pytest.mark.parametrize("name", ["org/Big 3B", "big-3b"])
def test_a_model_that_is_to_be_the_default_is_made_a_pair_with_its_draft_by_the_hint(specdec, models, name):
    """It was to be pulled, though it is here."""
    called = "Big 3B" if " " in name else "big-3B"
    (models / "org").mkdir()
    folder = (models / BIG).rename(models / "org" / called)
    code, message, hint = specdec.refused("pairs", "use", name)
    assert (code, message) == (3, f"{name} is a model that is here, and the default is a pair")
    target = folder if " " in name else "org/big-3B"
    words = ["specdec", "pairs", "add", "NAME" if " " in name else called, "--target", str(target), "--draft", SMALL]
    assert shlex.split(hint) == words and specdec(*words[1:])[0] == 0
    assert specdec("pairs", "use", words[3]) == (0, "", f"{words[3]} is now the default pair\n")


def test_such_a_word_is_a_prompt_of_a_model_that_was_chosen_and_a_model_named_first_beats_the_variable(
    specdec, monkeypatch
):
    """`specdec run llama3.2` of nobody is in the table of refusals."""
    for words in (["--raw", "phi4"], ["-p", "demo", "llama3.2"]):
        assert specdec("run", *words, "-n", "1", "-q")[0] == 0
    monkeypatch.setenv("SPECDEC_PAIR", "nosuch")
    assert specdec("run", "demo", "x", "--raw", "-n", "1", "-q")[0] == 0


def test_completion_has_models_of_others_and_what_is_here_first_in_any_case_and_nothing_too_large(
    specdec, models, monkeypatch
):
    monkeypatch.setattr("specdec_cli.pairs.catalog.physical_bytes", lambda: 16 * 10**9)
    monkeypatch.setenv("_SPECDEC_COMPLETE", "complete_bash")
    gguf(models / "org/Llama-GGUF")
    (models / BIG).rename(models / "org/Llama-9")
    for typed, found in {
        "run -p LLAMA": ["Llama-3.2-1B-Instruct-4bit", "Llama-9", "llama-3b", "llama-8b"],
        "chat llama-3b": ["llama-3b"], "run -m org/l": ["org/Llama-9"], "check Llama-9": ["Llama-9"],
        "run -p llama-70": [], "run -p D": ["demo", "demo-hybrid"],
    }.items():  # fmt: skip
        monkeypatch.setenv("COMP_WORDS", f"specdec {typed}")
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
        assert specdec()[1].split() == found, typed


def test_a_folder_that_is_not_there_is_named(specdec, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_MODEL_FOLDERS", str(tmp_path / "gone"))
    said = f"{tmp_path}/gone, one of your model folders, is not there or cannot be read\n"
    assert specdec("pairs")[2] == said


# Their commands, as their users type them, and what each becomes; the hints for others are in the table of refusals.

OURS = {
    "ls": "pairs", "list --json": "pairs --json", "models": "pairs", "show demo": "check demo", "-v": "--version",
    "version": "--version", "check -p demo": "check demo", "check --model=demo": "check demo",
    "pairs use -m demo": "pairs use demo", "rm -p nosuch -y": "rm nosuch -y",
    "run -p demo --raw -n 3 -q --no-draft x": "run -p demo --raw -n 3 -q --drafter none x",
    "generate --model demo --raw -n 3 -q x": "run -p demo --raw -n 3 -q x",
    "run demo --raw -n 3 -q x": "run -p demo --raw -n 3 -q x",
    "generate --model demo --prompt x --raw -n 3 -q": "run -p demo --raw -n 3 -q x",
    "run -m demo -p x --raw -n 3 -q": "run -p demo --raw -n 3 -q x",
    "run demo --prompt=x --raw -n 3 -q --temperature 0 -c 64": "run -p demo --raw -n 3 -q --max-context 64 x",
    "run -m demo -md specdec:demo/draft --draft-max=3 --raw -n 3 -q x": "run -p demo -k 3 --raw -n 3 -q x",
    "run demo --raw -n 3 -q --ignore-chat-template --think=false x": "run -p demo --raw -n 3 -q --think off x",
    "generate --model nosuch --prompt x --json": "run -p nosuch --json x",
    "server status": "ps", "server stop": "stop", "info demo": "check demo", "ask -q": "run -q",
    "server start -p nosuch": "serve -p nosuch", "download nosuch": "pull nosuch", "delete nosuch": "rm nosuch",
}  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "ours"),
    [pytest.param(*pair, marks=pytest.mark.slow if "-n 3" in pair[0] else ()) for pair in OURS.items()],
)
def test_a_habit_does_what_our_own_words_do(specdec, typed, ours):
    assert specdec(*typed.split()) == specdec(*ours.split())


def test_no_word_of_others_is_one_of_ours_and_no_hint_leads_back_to_one():
    """A new command or option of that name would never be reached."""
    ours = set(typer.main.get_command(app).commands)
    flags = {flag for row in ROWS.values() for pair in row.flags for flag in pair.split("/")}
    assert not ours & {*COMMANDS, *INSTEAD} and not flags & {*OPTIONS, *SAME}
    assert {word.split()[0] for word in COMMANDS.values()} <= ours | {"--version"}
    assert {word.partition("=")[0] for word in SAME.values()} <= flags
    for hint in (*INSTEAD.values(), *OPTIONS.values()):
        words = hint.replace(":", " ").replace(";", " ").split()
        named = {after for word, after in pairwise(words) if word == "specdec"}
        assert not named & {*COMMANDS, *INSTEAD}
        assert {word for word in words if word.startswith("--")} - flags <= {"--from", "--reinstall"}, hint  # uv's


def test_what_comes_after_two_hyphens_is_text():
    assert translate(["run", "--", "--temperature", "--no-draft"]) == ["run", "--", "--temperature", "--no-draft"]
    assert translate(["run", "ls"]) == ["run", "ls"] and translate([]) == []
    require_values(["run", "--system", "", "-k4", "--raw", "", "--", "--stop="])
    with pytest.raises(UsageError):
        require_values(["run", "--stop="])


@pytest.mark.parametrize("word", ["hello", "yes/no", "TCP/IP", "why is it", "src", "x" * 300, "为" * 90, "~5", "", " "])
def test_a_prompt_of_one_argument_stays_a_prompt(specdec, tmp_path, monkeypatch, word):
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not names_a_model(word, ALONE) and translate(["run", word]) == ["run", word]
    if word in ("src", " "):
        code, out, _ = specdec("run", "--raw", "-n", "3", "--json", word)
        assert code == (0 if word.strip() else 2)
        assert code or json.loads(out.splitlines()[0])["target"] == "specdec:demo/target"


@pytest.mark.parametrize("name", ["Plain Name 8bit", "pub/Plain Name 8bit", "my (own) model", "pub/my (own) model"])
def test_a_name_with_blanks_is_one_wherever_a_name_is(specdec, models, name):
    """`run -p 'Plain Name 8bit' abc` was followed by another argument; --target took the name."""
    (models / "pub").mkdir()
    folder = (models / SMALL).rename(models / "pub" / name.removeprefix("pub/"))
    for typed in (["-p", name], [name]):
        code, out, _ = specdec("run", *typed, "abc", "--raw", "-n", "3", "--json", "--drafter", "none")
        assert code == 0 and json.loads(out.splitlines()[0])["target"] == str(folder)
    assert translate(["race", "-p", name, "abc"]) == ["race", "-p", name, "abc"]
    assert names_a_model(name, ALONE) and not names_a_model("a plain name", ALONE)
    assert not names_a_model("what is llama.gguf", ALONE) and not names_a_model("a b", BEFORE)


def test_a_model_s_path_with_spaces_after_p_is_no_prompt(specdec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_folder(tmp_path / "my models/one")
    for name in ("my models/one", str(tmp_path / "my models/one")):
        code, out, _ = specdec("run", "-p", name, "--raw", "-n", "3", "--json", "x")
        assert code == 0 and json.loads(out.splitlines()[0])["target"] == name


@pytest.mark.slow
def test_a_prompt_after_p_may_be_longer_than_any_path(specdec):
    code, out, _ = specdec("run", "--raw", "-n", "3", "-q", "-p", "word " * 100)
    assert (code, out) == specdec("run", "--raw", "-n", "3", "-q", "word " * 100)[:2] and code == 0


def test_of_a_pair_that_is_partly_here_the_missing_model_is_named(specdec, models):
    """Its size is that of both."""
    shutil.rmtree(models / SMALL)
    code, message, hint = specdec.refused("run", "-p", "llama-3b", "hi")
    assert (code, hint) == (3, "specdec pull llama-3b") and message.startswith(f"llama-3b is not downloaded: {SMALL} ")
