"""From a name to a folder on this machine, what of it may be a path, and what is swept away."""

from __future__ import annotations

import json
import os
import shutil
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.hub_cache import COMMIT, FILES, NAME, PULL, WEIGHTS, place
from specdec_cli.core.errors import DoesNotFit, NotAvailable, PartlyHere
from specdec_cli.hub import cache as names
from specdec_cli.hub import download
from specdec_cli.hub.cached import removal
from specdec_cli.hub.places import PACKAGE, locate

INDEX = "model.safetensors.index.json"


def refusal(name: str, revision: str | None = None, kind: type = NotAvailable) -> tuple[str, str]:
    with pytest.raises(NotAvailable) as error:
        locate(name, revision)
    assert type(error.value) is kind
    return error.value.message, error.value.hint


# Names from outside

WANTED = ["config.json", "model-00001-of-00002.safetensors", "tokenizer.model", "merges.txt", "chat_template.jinja"]
WANTED += ["mtp.safetensors", "mtp/model.safetensors", "additional_chat_templates/tool_use.jinja"]
UNWANTED = ["modeling.py", "pytorch_model.bin", "onnx/config.json", "../config.json", "/etc/config.json", "..json"]
UNWANTED += ["._config.json", "mtp/config.json", "mtp/a/model.safetensors", "original/model.safetensors", "README.md"]
UNWANTED += ["a\\..\\x.json", "a\0.json", "x" * 201 + ".json", "a\x1b[2J.json", "config.json:x.json", ".."]
UNWANTED += ["mtp/../x.json", "mtp/a.jinja", "templates/a.jinja"]
UNWANTED += [f"additional_chat_templates/{name}" for name in ("a.json", "a.py", ".jinja", "../a.jinja", "a/b.jinja")]


def test_what_mlx_lm_reads_is_part_of_the_model_and_code_pickles_and_folders_are_not(tmp_path):
    assert [path for path in WANTED if not names.is_wanted(path)] == []
    assert [path for path in UNWANTED if names.is_wanted(path)] == []
    for folder in ("mtp", "additional_chat_templates"):
        (tmp_path / folder).mkdir()
    listed = ["a.json", "additional_chat_templates/b.jinja", "b.json", "mtp/model.safetensors"]
    for path in (*listed, "notes.md", "additional_chat_templates/a.json"):
        (tmp_path / path).touch()
    assert list(names.list_files(tmp_path)) == listed


@given(st.text("a./\\ \0\n-é@", max_size=30))
def test_a_revision_that_is_accepted_stays_below_refs(revision):
    try:
        names.require_revision("org/tiny", revision)
    except NotAvailable:
        return
    assert all(part and not part.startswith(".") for part in revision.split("/"))


@pytest.mark.parametrize("value", ["a" * 39, "A" * 40, "a" * 40 + "\n", "../x", None])
def test_a_digest_that_is_none_is_refused(value):
    with pytest.raises(NotAvailable, match="the Hub gives x of org/tiny the digest"):
        names.require_digest("org/tiny", "x", value)


OUTSIDE, NOWHERE = "is outside specdec's own folder", "there is no folder"


@pytest.mark.parametrize(
    ("name", "said"),
    [("specdec:..", OUTSIDE), ("specdec:/etc", OUTSIDE), ("nobody", NOWHERE), ("../../nowhere", NOWHERE)],
)
def test_a_shipped_model_is_a_folder_of_the_package_and_what_is_no_name_is_refused(cache, name, said):
    assert locate("specdec:demo") == PACKAGE / "demo"
    assert refusal(name)[0] in (f"{name} {said}", f"{said} {name}")


# Hub ids


@pytest.mark.parametrize(("compared", "revision"), [(True, None), (True, COMMIT), (False, "main")])
def test_a_whole_model_is_found_by_branch_and_by_commit_and_under_another_spelling(cache, compared, revision):
    """The Hub ignores case, and so does a Mac's disk."""
    assert refusal(NAME) == (f"{NAME} is neither a folder here nor in the model cache", PULL)
    snapshot = place(cache, compared=compared)
    assert locate(NAME, revision) == locate("Org/TINY", revision) == snapshot
    assert (names.cached_spelling("ORG/tiny"), names.cached_spelling("org/tiny2")) == (NAME, "org/tiny2")
    assert refusal(NAME, "v1") == (
        f"{NAME} at revision v1 is neither a folder here nor in the model cache",
        "specdec pull NAME, the pair that pins this revision",
    )


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_what_a_verdict_fetched_before_the_weights_is_no_part_of_a_model(cache, revision):
    """Of a pair with a revision the first `check` worked, and then nothing did: it was "only partly here"."""
    place(cache, {path: data for path, data in FILES.items() if path != WEIGHTS}, compared=False)
    assert refusal(NAME, revision)[0].endswith("is neither a folder here nor in the model cache")


def test_a_file_that_was_added_after_the_pull_is_refused(cache):
    """mlx-lm loads every model*.safetensors, and a tokenizer whatever of its files is there."""
    (extra := place(cache) / "model-extra.safetensors").write_bytes(b"{}")
    told = f"{extra.name} of {NAME} was added after the pull: it is not in the commit"
    assert refusal(NAME, kind=PartlyHere) == (told, f"delete {extra}")


@pytest.mark.parametrize("compared", [True, False])
def test_the_only_whole_snapshot_is_found_without_a_branch_and_of_several_each_is_named(cache, compared):
    """55: a cache that was copied without refs/, or filled by commit."""
    snapshot = place(cache, compared=compared)
    shutil.rmtree(snapshot.parents[1] / "refs", ignore_errors=True)
    assert locate(NAME) == snapshot
    if not compared:
        other = snapshot.with_name("f" * 40)
        shutil.copytree(snapshot, other, symlinks=True)
        message, hint = refusal(NAME)
        assert message.startswith(f"{NAME} is here at 2 commits") and "ffffffffffff" in message
        assert hint.startswith(f"name one: specdec pairs add NAME --target {NAME} --target-revision ")


def test_an_index_of_which_nothing_is_here_beside_other_weights_asks_for_nothing(cache):
    """50: mlx-community ships it so; with a part of it here, the rest is missing."""
    snapshot = place(cache, compared=False)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (snapshot / INDEX).write_text(json.dumps(index))
    assert locate(NAME) == snapshot
    (snapshot / "model-00001-of-00002.safetensors").write_bytes(b"")
    assert refusal(NAME, kind=PartlyHere)[0].endswith("first model-00002-of-00002.safetensors")


def test_one_commit_of_a_damaged_folder_is_not_removed_with_those_beside_it(cache):
    """An update that was interrupted before its first file leaves a branch that points nowhere."""
    snapshot = place(cache)
    shutil.copytree(snapshot, other := snapshot.with_name("f" * 40), symlinks=True)
    (names.repository(NAME) / "refs" / "main").write_text("e" * 40)
    with pytest.raises(NotAvailable, match="fffffff is there beside") as refused:
        removal(NAME, snapshot.name)
    assert refused.value.hint == f"specdec rm {NAME} removes all of it" and removal(NAME).commits == ()
    shutil.rmtree(other)
    assert removal(NAME, snapshot.name).freed_bytes


# What a download removes, and whether what is asked for fits on the disk


def test_parts_of_downloads_under_way_stay_and_those_of_killed_ones_go(cache):
    """A part that was written to a minute ago belongs to another pull."""
    blobs = names.repository("org/model") / "blobs"
    blobs.mkdir(parents=True)
    for seconds in (0, 60, 300, 601, 10**6):
        (blobs / f"{seconds}.incomplete").touch()
        os.utime(blobs / f"{seconds}.incomplete", (time.time() - seconds,) * 2)
    (blobs / "whole").touch()
    os.utime(blobs / "whole", (0, 0))
    download._sweep("org/model")
    assert {path.name for path in blobs.iterdir()} == {"0.incomplete", "60.incomplete", "300.incomplete", "whole"}


def test_two_models_that_fit_only_one_by_one_are_refused_together(cache, monkeypatch):
    monkeypatch.setattr(download, "free_bytes", lambda folder: 100)
    first, second = (SimpleNamespace(name=name, commit="c", download_bytes=60) for name in ("org/a", "org/b"))
    download.check_space([first])
    download.check_space([second, second])  # one and the same
    with pytest.raises(DoesNotFit, match=r"org/a and org/b need 120 B, .* has 100 B free"):
        download.check_space([first, second])
