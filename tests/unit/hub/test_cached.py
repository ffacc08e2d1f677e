"""From a name to a folder on this machine."""

from __future__ import annotations

import json
import shutil

import pytest

from fakes.hub_cache import COMMIT, NAME, PULL, place
from specdec_cli.core.errors import NotAvailable, PartlyHere
from specdec_cli.hub.cache import cached_spelling
from specdec_cli.hub.places import PACKAGE, locate

pytestmark = pytest.mark.usefixtures("cache")


def refusal(name: str, revision: str | None = None, kind: type = NotAvailable) -> tuple[str, str]:
    with pytest.raises(NotAvailable) as error:
        locate(name, revision)
    assert type(error.value) is kind
    return error.value.message, error.value.hint


# What is not a Hub id


def test_a_shipped_model_is_a_folder_of_the_package():
    assert locate("specdec:demo") == PACKAGE / "demo"


@pytest.mark.parametrize("name", ["specdec:..", "specdec:/etc"])
def test_nothing_outside_the_package_is_shipped(name):
    message, _ = refusal(name)
    assert message == f"{name} is outside specdec's own folder"


@pytest.mark.parametrize("name", ["nobody", "../../nowhere"])
def test_a_name_of_neither_shape_is_refused(name):
    assert refusal(name)[0] == f"there is no folder {name}"


# Hub ids


@pytest.mark.parametrize(("compared", "revision"), [(True, None), (True, COMMIT), (False, "main")])
def test_a_whole_model_is_found_by_branch_and_by_commit(cache, compared, revision):
    snapshot = place(cache, compared=compared)
    assert locate(NAME, revision) == snapshot


def test_a_model_that_is_not_here_names_the_pull(cache):
    assert refusal(NAME) == (f"{NAME} is neither a folder here nor in the model cache", PULL)
    place(cache)
    assert refusal(NAME, "v1") == (
        f"{NAME} at revision v1 is neither a folder here nor in the model cache",
        "specdec pull NAME, the pair that pins this revision",
    )


def test_a_model_is_found_under_another_spelling(cache):
    """The Hub ignores case, and so does a Mac's disk."""
    folder = place(cache)
    assert locate("Org/TINY") == folder and cached_spelling("ORG/tiny") == NAME
    assert cached_spelling("org/tiny2") == "org/tiny2"


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
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    assert locate(NAME) == snapshot
    (snapshot / "model-00001-of-00002.safetensors").write_bytes(b"")
    assert refusal(NAME, kind=PartlyHere)[0].endswith("first model-00002-of-00002.safetensors")


@pytest.mark.parametrize("file", ["mtp.safetensors", "mtp-00001-of-00001.safetensors", "mtp/weights.safetensors"])
def test_another_tools_snapshot_is_whole_without_the_head_that_its_index_names(cache, file):
    """mlx_lm fetches no such file, and the snapshot was only partly here."""
    snapshot = place(cache, compared=False)
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"mtp.fc.weight": file}}))
    assert locate(NAME) == snapshot
