"""`specdec pairs` as a person types it: real processes against a Hub on loopback."""

from __future__ import annotations

import json
import re

import pytest

from fakes.world import BIG, MODELS, SMALL
from specdec_cli.pairs.registry import packaged_file, read_registry

pytestmark = pytest.mark.slow


def test_pairs_shows_figures_and_models_within_80_columns(world):
    done = world("pairs")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "pair                 size  here  fits     K  source    Hub"
    demo = next(i for i, line in enumerate(lines) if line.startswith("demo *"))
    assert re.fullmatch(r"demo \* {12}1\d\.\d MB  yes   yes      4  packaged", lines[demo])
    assert lines[demo + 1] == "  specdec:demo/target + specdec:demo/draft"
    assert lines[-9:] == [
        "tiny                    –  no    ?     auto  yours     unverified",
        "  org/big + org/small",
        "odd                     –  no    ?     auto  yours     unverified",
        "  org/big + org/odd",
        "gone                    –  no    ?     auto  yours     unverified",
        "  org/nowhere, no draft",
        "* the default pair: it answers when none is named",
        "ids without an organisation are mlx-community/…",
        "24 of 25 not yet verified against the Hub: specdec pairs --online",
    ]
    assert max(map(len, lines)) <= 80
    assert world.hub.log == []


def test_pairs_as_json_is_one_array(world):
    rows = json.loads(world("pairs", "--json").out)
    tiny = next(row for row in rows if row["name"] == "tiny")
    assert tiny == {
        "name": "tiny",
        "target": BIG,
        "draft": SMALL,
        "size_bytes": None,
        "downloaded": False,
        "fits": None,
        "k": "auto",
        "source": "yours",
        "verified": False,
        "default": False,
        "note": "",
    }


def test_pairs_online_clears_unverified_and_names_what_the_hub_lacks(world):
    packaged = read_registry(packaged_file(), "packaged")
    for pair in packaged.pairs.values():
        for name, _ in pair.models:
            if not name.startswith("specdec:"):
                world.hub.commit(name, {"config.json": b"{}", "model.safetensors": b"x" * 1000})
    done = world("pairs", "--online")
    assert done.err == f"org/nowhere: no such repository on {world.hub.url}: org/nowhere, or it is private (404)"
    assert done.out.splitlines()[-1] == "1 of 25 not yet verified against the Hub: specdec pairs --online"
    world.hub.forget()
    rows = {row["name"]: row for row in json.loads(world("pairs", "--json").out)}
    assert [name for name, row in rows.items() if not row["verified"]] == ["gone"]
    size_bytes = sum(len(b.data) for n in (BIG, SMALL) for c in world.hub.repos[n].values() for b in c.values())
    assert rows["tiny"]["size_bytes"] == size_bytes
    assert world.hub.log == []


def test_a_hub_in_trouble_confirms_nothing_and_forgets_nothing(world):
    world.root.joinpath("cache/specdec").mkdir(parents=True)
    kept = world.root / "cache/specdec/confirmed.json"
    kept.write_text(json.dumps({BIG: 5, SMALL: 6}))
    world.hub.fail("status", status=429, headers={"Retry-After": "1"})
    done = world("pairs", "--online")
    assert (done.code, done.errors()[0][:35]) == (3, "the Hub takes no more requests from")
    assert json.loads(kept.read_text()) == {BIG: 5, SMALL: 6}


def test_pairs_add_use_and_path_edit_the_users_file_and_keep_its_comments(world):
    added = world("pairs", "add", "mine", "--target", BIG, "--draft", SMALL, "-k", "5", "--target-revision", "v1")
    assert (added.code, added.out, added.err) == (0, "", f"mine is in {world.models}")
    assert world("pairs", "use", "mine").err == "mine is now the default pair"
    text = world.models.read_text()
    assert "# my own words, and they stay" in text and "# same tokenizer" in text
    mine = read_registry(world.models, "yours")
    assert mine.default_pair == "mine"
    assert (mine.pairs["mine"].k, mine.pairs["mine"].target_revision) == (5, "v1")
    assert world("pairs", "path").out == str(world.models)


@pytest.mark.parametrize("command", [["pairs"], ["pairs", "add", "x", "--target", "o/t"], ["run", "hi"]])
def test_a_broken_models_toml_names_file_and_line_and_is_left_alone(world, command):
    broken = MODELS + 'draught = "org/x"\n'
    world.models.write_text(broken)
    done = world(*command)
    line = broken.count("\n")
    assert (done.code, done.errors()) == (2, [f"{world.models}:{line}: unknown key draught", "did you mean draft?"])
    assert world.models.read_text() == broken
