"""`specdec pairs` as a person types it: real processes against a Hub on loopback."""

from __future__ import annotations

import io
import json
import re
from contextlib import nullcontext

import pytest

from fakes.world import BIG, MODELS, SMALL
from specdec_cli.cli.pairs import ask
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.pairs.registry import packaged_file, read_registry


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_hub_in_trouble_confirms_nothing_and_forgets_nothing(world):
    world.root.joinpath("cache/specdec").mkdir(parents=True)
    kept = world.root / "cache/specdec/confirmed.json"
    kept.write_text(json.dumps({BIG: 5, SMALL: 6}))
    world.hub.fail("status", status=429, headers={"Retry-After": "1"})
    done = world("pairs", "--online")
    assert (done.code, done.errors()[0][:35]) == (3, "the Hub takes no more requests from")
    assert json.loads(kept.read_text()) == {BIG: 5, SMALL: 6}


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("command", [["pairs"], ["pairs", "add", "x", "--target", "o/t"], ["run", "hi"]])
def test_a_broken_models_toml_names_file_and_line_and_is_left_alone(world, command):
    broken = MODELS + 'draught = "org/x"\n'
    world.models.write_text(broken)
    done = world(*command)
    message = f"{world.models}:{broken.count(chr(10))}: unknown key draught"
    assert (done.code, done.errors()) == (2, [message, "did you mean draft or drafter?"])
    assert world.models.read_text() == broken


# In this process: no Hub, no download


def test_a_pair_of_ones_own_is_added_used_and_found(specdec):
    code, out, err = specdec("pairs", "add", "mine", "--target", "org/t", "--draft", "org/d", "-k", "5")
    assert (code, out, err) == (0, "", f"mine is in {specdec.models}\n")
    assert specdec("pairs", "use", "mine") == (0, "", "mine is now the default pair\n")
    assert specdec("pairs", "path") == (0, f"{specdec.models}\n", "")
    mine = read_registry(specdec.models, "yours")
    assert (mine.default_pair, mine.pairs["mine"].draft, mine.pairs["mine"].k) == ("mine", "org/d", 5)


@pytest.mark.parametrize("name", ["", "a b", "-x", "../x", "ü!"])
def test_a_name_that_is_none_is_refused_and_nothing_is_written(specdec, name):
    code, message, _ = specdec.refused("pairs", "add", "--target", "org/t", "--", name)
    assert (code, message) == (2, f"{name!r} is no name for a pair") and not specdec.models.exists()


def test_a_table_of_pairs_says_which_is_the_default(specdec):
    specdec.models.write_text('schema_version = 1\ndefault_pair = "mine"\n[pairs.mine]\ntarget = "org/t"\n')
    rows = {row["name"]: row for row in json.loads(specdec("pairs", "--json")[1])}
    assert [name for name, row in rows.items() if row["default"]] == ["mine"]
    assert rows["mine"]["source"] == "yours" and rows["demo"]["downloaded"]


def test_nobody_is_asked_where_nobody_can_answer(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ask("Free 1 GB?", yes=True)
    with pytest.raises(UsageError, match=r"there is no terminal to ask on: Free 1 GB\?"):
        ask("Free 1 GB?", yes=False)


@pytest.mark.parametrize(("answer", "error"), [("y\n", None), ("n\n", SpecdecError), ("", KeyboardInterrupt)])
def test_a_yes_goes_on_a_no_and_the_end_of_the_input_do_not(monkeypatch, answer, error):
    stdin = io.StringIO(answer)
    stdin.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(error) if error else nullcontext():
        ask("Free 1 GB?", yes=False)
