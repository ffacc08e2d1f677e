"""A target named alone takes a cached draft whose tokenizer agrees: the real program on a cache laid out by hand."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from fakes.models import TINY, byte_tokenizer, tiny_folder
from specdec_cli.core.errors import UsageError
from specdec_cli.core.kinds import DEFAULT_DRAFTER
from specdec_cli.pairs.choose import choose

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(home, name, **config):
    """A tiny model as the Hugging Face cache keeps it."""
    repository = home / "hub" / ("models--" + name.replace("/", "--"))
    folder = tiny_folder(repository / "snapshots" / COMMIT, TINY | config, seed=1)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A big target, a fitting draft, one as big as the target, and one that would fit but for its tokenizer."""
    home = tmp_path_factory.mktemp("home")
    cached(home, "org/big", num_hidden_layers=16, intermediate_size=512)
    cached(home, "org/huge", num_hidden_layers=17, intermediate_size=512)
    cached(home, "org/small", num_hidden_layers=1)
    alien = cached(home, "org/alien", num_hidden_layers=1)
    (alien / "tokenizer.json").write_text(byte_tokenizer().to_str().replace('"a":', '"@":', 1))
    return home


def start_event(home, *arguments):
    command = [sys.executable, "-m", "specdec_cli", "run", "--raw", "-n", "4", "--json", *arguments, "x"]
    environment = os.environ | {"HF_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[0])


@pytest.mark.slow
def test_without_a_fitting_draft_the_text_itself_drafts(home, tmp_path):
    shutil.copytree(home, tmp_path / "home", symlinks=True)
    shutil.rmtree(tmp_path / "home" / "hub" / "models--org--small")
    start = start_event(tmp_path / "home", "--target", "org/big")
    assert (start["draft"], start["drafter"], start["k"]) == (None, "ngram", "auto")


@pytest.mark.slow
def test_a_target_alone_takes_the_cached_draft_whose_tokenizer_agrees_and_says_so(home):
    command = [sys.executable, "-m", "specdec_cli", "run", "--raw", "-n", "4", "--target", "org/big", "x"]
    environment = os.environ | {"HF_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    said = r"draft org/small: in the model cache, \d+ times smaller, and its tokenizer agrees"
    assert re.fullmatch(said, done.stderr.splitlines()[0])


@pytest.mark.slow
def test_a_pair_of_a_target_alone_takes_the_draft_that_is_here(home, monkeypatch, tmp_path):
    """Only a target named by itself did: `pairs add NAME --target ID` made a pair that never drafted with a model."""
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    pairs = [sys.executable, "-m", "specdec_cli", "pairs"]
    environment = os.environ | {"HF_HOME": str(home)}
    subprocess.run([*pairs, "add", "mine", "--target", "org/big"], env=environment, check=True, capture_output=True)
    start = start_event(home, "-p", "mine")
    assert (start["draft"], start["drafter"]) == ("org/small", DEFAULT_DRAFTER)
    listed = json.loads(subprocess.run([*pairs, "--json"], env=environment, check=True, capture_output=True).stdout)
    assert next(row for row in listed if row["name"] == "mine")["draft"] == "org/small"


@pytest.mark.slow
def test_no_draft_is_looked_for_when_none_is_wanted(home):
    assert start_event(home, "--target", "org/big", "--drafter", "none")["draft"] is None


def test_a_draft_beside_a_pairs_name_takes_the_place_of_its_draft(monkeypatch, tmp_path):
    """It was an error: the pair had to be spelled out by its models."""
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    found = choose("demo", None, "org/other")
    assert (found.pair.target, found.pair.draft, found.pair.draft_revision) == (
        "specdec:demo/target",
        "org/other",
        None,
    )
    assert (found.pair.k, found.pair.draft_bytes, found.drafter) == ("auto", None, DEFAULT_DRAFTER)
    assert found.pair.run_command.startswith("specdec run --target specdec:demo/target --draft org/other ")
    with pytest.raises(UsageError, match="--draft org/other has no target to draft for"):
        choose(None, None, "org/other")


def test_a_command_names_the_pair_where_only_a_pair_can_say_it(monkeypatch, tmp_path):
    """A revision, an adapter and a head have no option: beside another draft they come from the pair."""
    t1, d1 = "1" * 40, "d" * 40
    models = tmp_path / "models.toml"
    models.write_text(
        f'schema_version = 1\n[pairs.pinned]\ntarget = "org/big"\ntarget_revision = "{t1}"\ndraft = "org/small"\n'
        f'draft_revision = "{d1}"\n[pairs.headed]\ntarget = "org/t"\nhead_from = "org/o"\n'
    )
    monkeypatch.setenv("SPECDEC_MODELS", str(models))
    both, other = choose("pinned", None, None).pair, choose("pinned", None, "org/other").pair
    assert (both.target_revision, both.draft_revision) == (t1, d1)
    assert (other.target_revision, other.draft_revision) == (t1, None)
    assert other.options == ["-p", "pinned", "--draft", "org/other"]
    for target in ("org/big", "org/t"):
        found = choose(None, target, None).pair
        assert found.draft and found.options == ["--target", target] and choose(None, target, None).pair == found


def test_a_target_alone_takes_all_that_its_listed_pair_says(monkeypatch, tmp_path):
    """It took draft and K, and not the drafter and the draft context that K was measured with."""
    models = tmp_path / "models.toml"
    models.write_text(
        'schema_version = 1\n[pairs.mine]\ntarget = "org/big"\ndraft = "org/small"\nk = 3\ndrafter = "auto"\n'
        "draft_context = 33\nstop_repetition = 64\n"
    )
    monkeypatch.setenv("SPECDEC_MODELS", str(models))
    found, listed = choose(None, "org/big", None), choose("mine", None, None)
    assert found.drafter == listed.drafter == "auto"
    for name in ("draft", "k", "drafter", "draft_context", "stop_repetition"):
        assert getattr(found.pair, name) == getattr(listed.pair, name), name
