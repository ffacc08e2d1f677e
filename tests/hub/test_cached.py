"""From a name to a folder on this machine."""

from __future__ import annotations

import pytest

from fakes.hub_cache import COMMIT, FILES, NAME, OTHER_COMMIT, PULL, WEIGHTS, place
from fakes.hub_server import Blob
from specdec_cli.errors import NotAvailable, PartlyHere
from specdec_cli.hub.cached import PACKAGE, cached_models, locate, spelled_here

pytestmark = pytest.mark.usefixtures("cache")


def refusal(name: str, revision: str | None = None, kind: type = NotAvailable) -> tuple[str, str]:
    with pytest.raises(NotAvailable) as error:
        locate(name, revision)
    assert type(error.value) is kind
    return error.value.message, error.value.hint


# What is no Hub id


def test_a_shipped_model_is_a_folder_of_the_package():
    assert locate("specdec:demo") == PACKAGE / "demo"


@pytest.mark.parametrize("name", ["specdec:..", "specdec:../tests", "specdec:/etc", "specdec:demo/../../tests"])
def test_nothing_outside_the_package_is_shipped(name):
    message, _ = refusal(name)
    assert message == f"{name} is outside specdec's own folder"


def test_a_folder_is_its_own_model(tmp_path):
    assert locate(str(tmp_path)) == tmp_path


def test_a_file_is_no_model(tmp_path):
    message, hint = refusal(str(tmp_path / "victim.txt"))
    assert message.endswith("victim.txt is a file, and a model is a folder")
    assert hint == "give the folder that holds config.json"


@pytest.mark.parametrize("name", ["nobody", "a/b/c", "../../nowhere", "/nowhere/at/all"])
def test_a_name_of_neither_shape_is_refused(name):
    assert refusal(name)[0] == f"no folder {name} here"


@pytest.fixture
def own(tmp_path):
    """A model's folder of a person's own."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_a_link_inside_a_persons_own_folder_is_followed(own):
    (own / "model.safetensors").symlink_to(own / "config.json")
    assert locate(str(own)) == own


@pytest.mark.parametrize("target", ["../victim.txt", "/etc/passwd"])
def test_a_link_out_of_a_persons_own_folder_is_refused(own, target):
    (own / "model.safetensors").symlink_to(target)
    message, hint = refusal(str(own))
    assert message == f"model.safetensors of {own} is a link that leads out of the model's folder, to {target}"
    assert hint == "put the file itself in its place"


def test_a_circle_of_links_is_refused(own):
    (own / "model.safetensors").symlink_to(own / "model.safetensors")
    assert "leads out of the model's folder" in refusal(str(own))[0]


def test_a_snapshot_may_be_given_by_its_path(cache):
    snapshot = place(cache)
    assert locate(str(snapshot)) == snapshot


# Hub ids


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_whole_model_is_found_by_branch_and_by_commit(cache, compared, revision):
    snapshot = place(cache, compared=compared)
    assert locate(NAME, revision) == snapshot


def test_a_model_that_is_not_here_names_the_pull(cache):
    assert refusal(NAME) == (f"{NAME} is neither a folder here nor in the model cache", PULL)
    place(cache)
    assert refusal(NAME, "v1") == (
        f"{NAME} at revision v1 is neither a folder here nor in the model cache",
        f"{PULL} --target-revision v1",
    )


def test_the_only_whole_commit_is_found_without_a_branch(cache):
    snapshot = place(cache, ref="")
    assert locate(NAME) == snapshot


def test_of_two_commits_without_a_branch_none_is_chosen(cache):
    place(cache, ref="")
    place(cache, commit=OTHER_COMMIT, ref="")
    refusal(NAME)


def test_a_branch_whose_commit_is_gone_chooses_no_other(cache):
    place(cache, commit=OTHER_COMMIT, ref="")
    (cache / "models--org--tiny" / "refs" / "main").write_text(COMMIT)
    refusal(NAME)


@pytest.mark.parametrize("revision", ["../../x", "/main", "a b"])
def test_a_revision_that_can_be_none_is_refused(revision):
    assert "can have no revision" in refusal(NAME, revision)[0]


@pytest.mark.parametrize("content", ["../../../../..", "main", ""])
def test_a_branchs_file_that_holds_no_commit_leads_nowhere(cache, content):
    (cache / "models--org--tiny" / "refs").mkdir(parents=True)
    (cache / "models--org--tiny" / "refs" / "main").write_text(content)
    refusal(NAME)


def test_lost_files_are_counted_before_anything_else(cache):
    snapshot = place(cache)
    (snapshot / "tokenizer.json").unlink()
    (snapshot / WEIGHTS).unlink()
    (snapshot / "extra.json").write_text("{}")
    assert refusal(NAME, kind=PartlyHere) == (f"{NAME} is only partly here: 2 files missing, first {WEIGHTS}", PULL)


def test_an_altered_file_shows_both_digests(cache):
    snapshot = place(cache)
    (snapshot / "config.json").resolve().write_bytes(b"[]")
    was, is_now = (Blob("config.json", data).git_sha1[:12] for data in (FILES["config.json"], b"[]"))
    message = f"config.json of {NAME} is not what was pulled: {is_now} instead of {was}"
    assert refusal(NAME, kind=PartlyHere) == (message, PULL)


def test_an_added_file_is_to_be_deleted(cache):
    snapshot = place(cache)
    (snapshot / "model-extra.safetensors").write_bytes(b"")
    message, hint = refusal(NAME, kind=PartlyHere)
    assert message.startswith(f"model-extra.safetensors of {NAME} was put beside the files that were pulled")
    assert hint == f"delete {snapshot / 'model-extra.safetensors'}"


def test_cached_models_are_listed_by_their_ids_whole_or_not(cache):
    place(cache)
    for folder in ("models--a--b--c", "datasets--a--b", ".locks"):
        (cache / folder).mkdir()
    assert cached_models() == ("a/b--c", NAME)


def test_a_model_is_found_under_another_spelling(cache):
    """The Hub ignores case, and so does a Mac's disk."""
    folder = place(cache)
    assert locate("Org/TINY") == folder and spelled_here("ORG/tiny") == NAME
    assert spelled_here("org/tiny2") == "org/tiny2"


def test_its_own_spelling_comes_first(cache):
    place(cache)
    (cache / "models--ORG--Tiny").mkdir()
    assert (spelled_here("ORG/Tiny"), spelled_here(NAME)) == ("ORG/Tiny", NAME)
