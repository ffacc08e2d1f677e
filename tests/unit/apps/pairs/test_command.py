"""The commands of pairs in this process: entries of one's own, verdicts on folders, and their tokenizers' files."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
import tokenizers

from fakes.models import TINY, tiny_folder
from specdec_cli import hub
from specdec_cli.apps.pairs.pull import plan_removal
from specdec_cli.core.errors import DoesNotFit, NotAvailable
from specdec_cli.hub import Removal
from specdec_cli.pairs.pair import Pair, Registry
from specdec_cli.pairs.registry import load_registry, packaged_file, read_registry


def test_a_pair_of_ones_own_is_added_used_and_found_and_the_files_comments_stay(specdec):
    specdec.models.write_text("# my own words\nschema_version = 1\n")
    commit, words = "a" * 40, ("pairs", "add", "mine", "--target", "org/t", "--draft", "org/d", "-k", "0")
    code, out, err = specdec(*words, "--target-revision", commit)
    assert (code, out) == (0, "")
    assert err == f"saved pair mine ({specdec.models})\nit is not here yet: specdec pull mine\n"
    assert specdec("pairs", "use", "mine", "--force") == (0, "", "mine is now the default pair\n")
    mine = load_registry(packaged_file(), specdec.models, specdec.config)
    assert (mine.default_pair, mine.pairs["mine"].draft, mine.pairs["mine"].k) == ("mine", "org/d", 0)
    assert mine.pairs["mine"].target_revision == commit
    assert specdec.models.read_text().startswith("# my own words\n")
    row = next(row for row in json.loads(specdec("pairs", "--json")[1]) if row["default"])
    known = {"name": "mine", "target": "org/t", "draft": "org/d", "k": 0, "source": "yours", "verified": False}
    assert row.pop("evidence") == ""
    unknown = {"size_bytes": None, "estimated_bytes": None, "fits": None, "downloaded": False, "tokenizers": None}
    assert row == known | unknown | {"default": True, "note": "", "folder": None, "recommended": False}


def test_a_pair_whose_folder_is_gone_cannot_become_the_default(specdec, tiny_pair, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_pair[0], folder)
    assert specdec("pairs", "add", "mine", "--target", folder)[0] == 0
    folder.rename(tmp_path / "elsewhere")
    code, message, hint = specdec.refused("pairs", "use", "mine")
    assert (code, message) == (3, f"there is no folder {folder}")
    assert hint == "check the path; a Hub id looks like organisation/name"


def test_pairs_use_pulls_what_is_not_here_if_it_may(specdec, monkeypatch):
    pulled = []
    monkeypatch.setattr("specdec_cli.apps.pairs.pull.pull", lambda pair, **_: pulled.append(pair.name))
    assert specdec("pairs", "use", "llama-3b", "--yes") == (0, "", "llama-3b is now the default pair\n")
    assert pulled == ["llama-3b"]

    def full(pair, **options):
        raise DoesNotFit(str(options["remedies"]), "free some space")

    # A full disk was told to use --force, which does not help.
    monkeypatch.setattr("specdec_cli.apps.pairs.pull.pull", full)
    assert specdec.refused("pairs", "use", "llama-3b", "--yes") == (5, "frozenset()", "free some space")


def test_a_folder_is_kept_by_its_whole_path(specdec, tiny_pair, monkeypatch):
    """A path relative to where `pairs add` was typed was found from there alone."""
    monkeypatch.chdir(tiny_pair[0].parent)
    code, _, err = specdec("pairs", "add", "mine", "--target", "./target", "--draft", "draft")
    assert (code, err) == (0, f"saved pair mine ({specdec.models})\n")
    mine = read_registry(specdec.models, "yours").pairs["mine"]
    assert (mine.target, mine.draft) == tuple(map(str, tiny_pair))


def test_a_folder_that_was_pulled_is_one_pair_from_anywhere_and_its_command_can_be_typed(
    specdec, tiny_pair, tmp_path, monkeypatch
):
    """`specdec pull ./m` made that path the default pair: in every other folder all commands failed."""
    folders = tmp_path / "m", tmp_path / "My Model"
    for folder in folders:
        shutil.copytree(tiny_pair[0], folder)
    monkeypatch.chdir(tmp_path)
    assert specdec("pull", "./m")[0] == 0
    told = "My Model is here: specdec run -p 'My Model' 'your prompt'"
    assert specdec("pull", "./My Model")[2].splitlines()[-1] == told
    monkeypatch.chdir(folders[0])
    assert specdec("pull", ".")[2].splitlines()[-1].startswith("m is here, and is the default pair")
    assert specdec("pull", folders[1])[2].splitlines()[-1] == told
    mine = read_registry(specdec.models, "yours").pairs
    assert {name: pair.target for name, pair in mine.items()} == {folder.name: str(folder) for folder in folders}


def test_an_entry_is_replaced_whole_if_that_is_agreed_to(specdec):
    specdec("pairs", "add", "mine", "--target", "org/t", "--draft", "org/d")
    assert specdec("pairs", "add", "mine", "--target", "org/other", "--yes")[0] == 0
    assert read_registry(specdec.models, "yours").pairs["mine"].draft is None


def test_a_k_of_ones_own_for_a_packaged_pair_keeps_what_is_known_of_it(specdec):
    packaged = read_registry(packaged_file(), "packaged").pairs["llama-3b"]
    assert (
        specdec("pairs", "add", "llama-3b", "--target", packaged.target, "--draft", packaged.draft, "-k", "3")[0] == 0
    )
    assert read_registry(specdec.models, "yours").pairs["llama-3b"] == replace(packaged, k=3, source="yours")


def test_a_removed_pair_is_gone_and_so_is_its_place_as_the_default(specdec):
    specdec.models.write_text('# my words\nschema_version = 1\ndefault_pair = "a"\n[pairs.a]\ntarget = "org/t"\n')
    assert specdec("pairs", "remove", "a", "--yes") == (
        *(0, ""),
        f"a was removed from {specdec.models}; no model was deleted\n"
        "a was the default pair; choose another: specdec pairs use NAME\n",
    )
    assert specdec.models.read_text() == "# my words\nschema_version = 1\n"


def test_removing_an_entry_over_a_packaged_one_brings_that_back(specdec):
    specdec.models.write_text('schema_version = 1\ndefault_pair = "demo"\n[pairs.demo]\ntarget = "org/t"\n')
    code, _, err = specdec("pairs", "remove", "demo", "--yes")
    assert (code, err.splitlines()[-1]) == (0, "the packaged demo is back: specdec:demo/target with specdec:demo/draft")
    assert read_registry(specdec.models, "yours").default_pair == "demo"
    rows = {row["name"]: row for row in json.loads(specdec("pairs", "--json")[1])}
    assert rows["demo"]["draft"] == "specdec:demo/draft"


def test_check_of_a_context_that_does_not_fit_exits_5_and_says_which_would(specdec, tmp_path):
    folder = tiny_folder(tmp_path / "m", TINY | {"max_position_embeddings": 2_000_000_000}, seed=1)
    code, out, _ = specdec("check", folder, "--max-context", "1000000000")
    words = " ".join(out.split())
    assert code == 5 and re.search(r"refused .* needs [\d.]+ .B at 1000000000 tokens of context; [\d.]+ .B", words)
    assert re.search(r"hint a smaller context fits: --max-context \d+", words) and "--force" not in words


@pytest.mark.parametrize("pair", ["demo", "demo-hybrid"])
def test_there_is_no_advice_against_the_pairs_that_ship(specdec, pair):
    code, out, _ = specdec("check", pair, "--json")
    assert (code, json.loads(out)["advice"]) == (0, [])


def test_the_pair_that_a_pull_without_a_name_would_bring_is_marked(specdec):
    rows = json.loads(specdec("pairs", "--json", "--all")[1])
    (best,) = [row["name"] for row in rows if row["recommended"]]
    assert f" {best} is recommended for this machine: " in specdec.refused("pull")[1]
    assert specdec("pairs")[1].count("recommended for this machine") == 1


SPECIAL_ONLY = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}


@pytest.fixture
def bare(tmp_path):
    """A folder with configuration and weights alone, of a type that transformers makes an empty tokenizer for."""
    folder = tiny_folder(tmp_path / "bare")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(SPECIAL_ONLY))
    return folder


def test_a_vocabulary_beside_its_merges_is_a_tokenizer(specdec, bare, tiny_pair):
    """What mlx_lm and transformers load is loaded: no tokenizer.json is asked for where they need none."""
    vocabulary = json.loads((tiny_pair[0] / "tokenizer.json").read_text())["model"]["vocab"]
    (bare / "vocab.json").write_text(json.dumps(vocabulary))
    (bare / "merges.txt").write_text("#version: 0.2\n")
    assert specdec("check", bare)[0] == 0
    assert specdec("run", "-p", bare, "--raw", "-n", "2", "hi")[0] == 0


@pytest.mark.slow
def test_a_repository_without_a_tokenizer_is_refused_before_its_weights_are_downloaded(world, bare):
    world.hub.commit("org/bare", bare)
    done = world("pull", "--target", "org/bare")
    assert (done.code, done.errors()[0]) == (3, "no tokenizer in org/bare: tokenizer.json is needed")
    assert world.weight_bytes_sent() == 0


@pytest.fixture
def parsed(monkeypatch):
    """The texts of every tokenizer.json that Python or tokenizers parsed, in order."""
    seen, decode, from_file = [], json.JSONDecoder.decode, tokenizers.Tokenizer.from_file

    def counted(decoder, text, *more):
        if '"added_tokens"' in text and '"vocab"' in text:
            seen.append(text)
        return decode(decoder, text, *more)

    monkeypatch.setattr(json.JSONDecoder, "decode", counted)
    monkeypatch.setattr(tokenizers.Tokenizer, "from_file", lambda path: (seen.append(path), from_file(path))[1])
    return seen


@pytest.mark.parametrize(("command", "more"), [(["run", "-n", "2", "-p"], ["--raw", "hi"]), (["check"], [])])
def test_a_tokenizer_is_parsed_only_by_mlx_lm_and_by_transformers(specdec, tmp_path, parsed, command, more):
    """Choosing a draft, checking it and loading parsed the same megabytes again: seconds before the first word."""
    assert specdec(*command, tiny_folder(tmp_path / "m", seed=1), *more)[0] == 0
    assert 1 <= len(parsed) <= 3  # mlx_lm's, and transformers' of the file and of its added tokens


def test_a_draft_with_files_of_its_own_is_parsed_as_often_and_one_with_the_targets_never(specdec, tmp_path, parsed):
    target, draft = (tiny_folder(tmp_path / name, seed=1) for name in ("target", "draft"))
    arguments = ["run", "-n", "2", "--raw", "hi", "--target", target, "--draft", draft]
    assert specdec(*arguments)[0] == 0
    assert (alone := len(parsed)) <= 3
    shutil.copy(draft / "tokenizer.json", draft / "copy.json")  # one more file: it is no longer alike
    assert specdec(*arguments)[0] == 0 and len(parsed) <= 2 * alone


def test_a_changed_tokenizer_is_read_again(specdec, tmp_path):
    folder = tiny_folder(tmp_path / "m", seed=1)
    assert specdec("check", folder)[0] == 0
    (folder / "tokenizer.json").write_text("{}")
    assert specdec.refused("check", folder)[0] == 3


def test_a_pinned_model_loses_its_commit_alone_and_says_what_stays(monkeypatch):
    """Its target is not here: what is here goes."""

    def removal(name, commit):
        if name == "org/other":
            raise NotAvailable("org/other is not in the model cache", "specdec pairs")
        return Removal(name, ("c" * 40,), (commit,), 5_000_000)

    monkeypatch.setattr(hub, "removal", removal)
    pairs = Pair("one", "org/big", "org/tiny"), Pair("two", "org/other", "org/tiny", draft_revision="d" * 40)
    ((_, summary),) = plan_removal("two", Registry({pair.name: pair for pair in pairs}, None))
    assert summary == "org/tiny: 5.0 MB; what commit ddddddd shares will stay; also used by one"
