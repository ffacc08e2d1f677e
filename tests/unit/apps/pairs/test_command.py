"""`specdec pairs` as a person types it: real processes against a Hub on loopback."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest

from fakes.world import BIG, MODELS, SMALL
from specdec_cli.pairs.registry import load_registry, packaged_file, read_registry


@pytest.mark.slow
def test_pairs_shows_figures_and_models_within_80_columns(world):
    done = world("pairs")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "ready to run here"
    assert re.fullmatch(r"  demo +2\d\.\d MB  K 2", lines[1])
    assert lines[2] == "      specdec:demo/target + specdec:demo/draft"
    assert re.fullmatch(r"  demo-hybrid +[56]\.\d MB  K \d", lines[3])
    assert lines[4:7] == ["      specdec:demo/hybrid, its own head", "", "to download: specdec pull NAME"]
    assert re.fullmatch(r"  tiny +–  K auto  yours", lines[7])
    assert lines[8] == "      org/big + org/small"
    assert "* the default pair: used when you give no --pair" not in lines  # none was chosen
    assert "ids without an organisation are mlx-community/…" in lines
    assert max(map(len, lines)) <= 80
    assert world.hub.log == []


@pytest.mark.slow
def test_pairs_online_clears_unverified_and_names_what_the_hub_lacks(world):
    packaged = read_registry(packaged_file(), "packaged")
    for pair in packaged.pairs.values():
        for name, _ in pair.models:
            if not name.startswith("specdec:"):
                world.hub.commit(name, {"config.json": b"{}", "model.safetensors": b"x" * 1000})
    done = world("pairs", "--online")
    assert done.err.startswith(f"org/nowhere: org/nowhere cannot be fetched from {world.hub.url}: 404 Client Error. ")
    assert re.fullmatch(r"1 of \d+ are unverified: specdec pairs --online asks the Hub", done.out.splitlines()[-1])
    world.hub.forget()
    rows = {row["name"]: row for row in json.loads(world("pairs", "--json").out)}
    assert [name for name, row in rows.items() if not row["verified"]] == ["gone"]
    size_bytes = sum(len(b.data) for n in (BIG, SMALL) for c in world.hub.repos[n].values() for b in c.values())
    assert rows["tiny"]["size_bytes"] == size_bytes
    assert world.hub.log == []


@pytest.mark.slow
def test_a_hub_in_trouble_confirms_nothing_and_forgets_nothing(world):
    world.root.joinpath("cache/specdec").mkdir(parents=True)
    kept = world.root / "cache/specdec/confirmed.json"
    kept.write_text(json.dumps({BIG: 5, SMALL: 6}))
    world.hub.fail("status", status=429, headers={"Retry-After": "1"})
    done = world("pairs", "--online")
    assert (done.code, " cannot be fetched from " in done.errors()[0]) == (3, True)
    assert json.loads(kept.read_text()) == {BIG: 5, SMALL: 6}


@pytest.mark.parametrize("command", [["pairs"], ["pairs", "add", "x", "--target", "o/t"], ["run", "hi"]])
def test_a_broken_models_toml_names_file_and_line_and_is_left_alone(specdec, command):
    broken = MODELS + 'draught = "org/x"\n'
    specdec.models.write_text(broken)
    message = f"{specdec.models}:{broken.count(chr(10))}: unknown key draught"
    assert specdec.refused(*command) == (2, message, "did you mean draft?")
    assert specdec.models.read_text() == broken


# In this process: no Hub, no download


def test_a_pair_of_ones_own_is_added_used_and_found_and_the_files_comments_stay(specdec):
    specdec.models.write_text("# my own words\nschema_version = 1\n")
    code, out, err = specdec("pairs", "add", "mine", "--target", "org/t", "--draft", "org/d", "-k", "0")
    assert (code, out) == (0, "")
    assert err == f"saved pair mine ({specdec.models})\nit is not here yet: specdec pull mine\n"
    assert specdec("pairs", "use", "mine", "--force") == (0, "", "mine is now the default pair\n")
    mine = load_registry(packaged_file(), specdec.models, specdec.config)
    assert (mine.default_pair, mine.pairs["mine"].draft, mine.pairs["mine"].k) == ("mine", "org/d", 0)
    assert specdec.models.read_text().startswith("# my own words\n")
    row = next(row for row in json.loads(specdec("pairs", "--json")[1]) if row["default"])
    known = {"name": "mine", "target": "org/t", "draft": "org/d", "k": 0, "source": "yours", "verified": False}
    assert row.pop("evidence") == ""
    unknown = {"size_bytes": None, "estimated_bytes": None, "fits": None, "downloaded": False}
    assert row == known | unknown | {"default": True, "note": "", "folder": None, "recommended": False}


def test_a_pair_keeps_commits(specdec):
    commit = "a" * 40
    words = ("pairs", "add", "mine", "--target", "org/t", "--draft", "org/d", "--target-revision", commit)
    assert specdec(*words)[0] == 0
    assert read_registry(specdec.models, "yours").pairs["mine"].target_revision == commit


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
    monkeypatch.setattr("specdec_cli.pairs.pull.pull", lambda pair, screen, **_: pulled.append(pair.name))
    assert specdec("pairs", "use", "llama-3b", "--yes") == (0, "", "llama-3b is now the default pair\n")
    assert pulled == ["llama-3b"]


def test_a_folder_is_kept_by_its_whole_path(specdec, tiny_pair, monkeypatch):
    """A path relative to where `pairs add` was typed was found from there alone."""
    monkeypatch.chdir(tiny_pair[0].parent)
    code, _, err = specdec("pairs", "add", "mine", "--target", "./target", "--draft", "draft")
    assert (code, err) == (0, f"saved pair mine ({specdec.models})\n")
    mine = read_registry(specdec.models, "yours").pairs["mine"]
    assert (mine.target, mine.draft) == tuple(map(str, tiny_pair))


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


@pytest.mark.parametrize("pair", ["demo", "demo-hybrid"])
def test_there_is_no_advice_against_the_pairs_that_ship(specdec, pair):
    code, out, _ = specdec("check", pair, "--json")
    assert (code, json.loads(out)["advice"]) == (0, [])


def test_the_pair_that_a_pull_without_a_name_would_bring_is_marked(specdec):
    rows = json.loads(specdec("pairs", "--json", "--all")[1])
    (best,) = [row["name"] for row in rows if row["recommended"]]
    assert f" {best} is recommended for this machine: " in specdec.refused("pull")[1]
    assert specdec("pairs")[1].count("recommended for this machine") == 1
