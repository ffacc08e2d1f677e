"""Removing a model: the plan's figure is the figure freed, and nothing else loses a byte."""

from __future__ import annotations

import shutil

import pytest

from fakes.hub_cache import COMMIT, FILES, NAME, OTHER_COMMIT, WEIGHTS, place
from specdec_cli.errors import NotAvailable
from specdec_cli.hub import manifest
from specdec_cli.hub.deletion import removal, remove

TOTAL = sum(map(len, FILES.values()))


def test_a_plan_changes_nothing_and_names_the_bytes(cache):
    snapshot = place(cache)
    plan = removal(NAME)
    assert (plan.commits, plan.kept_commits, plan.freed_bytes, plan.shared_files) == ((COMMIT,), (), TOTAL, ())
    assert (snapshot / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_a_removed_model_is_gone_with_its_folder(cache):
    place(cache)
    assert remove(removal(NAME)) == TOTAL
    assert not (cache / "models--org--tiny").exists()


def test_another_spelling_plans_the_same_removal(cache):
    """The bug: on a disk that ignores case the model was taken for a broken folder, and all its commits went."""
    place(cache, ref="")
    place(cache, FILES | {WEIGHTS: b"n" * 900}, commit=OTHER_COMMIT)
    assert removal("ORG/Tiny", COMMIT) == removal(NAME, COMMIT)


def test_the_rest_of_an_interrupted_download_is_counted_and_goes_too(cache):
    place(cache)
    (cache / "models--org--tiny" / "blobs" / "dead.incomplete").write_bytes(b"x" * 77)
    assert removal(NAME).freed_bytes == TOTAL + 77


def test_removing_one_commit_keeps_what_the_other_uses(cache):
    place(cache, ref="")
    newer = FILES | {WEIGHTS: b"n" * 900}
    kept = place(cache, newer, commit=OTHER_COMMIT)
    plan = removal(NAME, COMMIT)
    assert (plan.commits, plan.kept_commits) == ((COMMIT,), (OTHER_COMMIT,))
    assert (plan.freed_bytes, plan.shared_files) == (1000, ("config.json", "tokenizer.json"))
    assert plan.shared_bytes == TOTAL - 1000
    assert remove(plan) == 1000
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == newer
    assert (manifest.read(NAME, COMMIT), manifest.read(NAME, OTHER_COMMIT) is None) == (None, False)


def test_a_model_that_is_not_here_is_named_with_the_cache(cache):
    with pytest.raises(NotAvailable) as error:
        removal(NAME)
    assert (error.value.message, error.value.hint) == (f"{NAME} is not in the model cache {cache}", "specdec pairs")


def test_a_commit_that_is_not_here_is_named_beside_those_that_are(cache):
    place(cache)
    with pytest.raises(NotAvailable, match=f"{NAME} has no commit f00 here, only {COMMIT[:7]}"):
        removal(NAME, "f00")


@pytest.mark.parametrize("name", ["nobody", "org/..", "../victim.txt", "org/a--b", "a/b/c"])
def test_a_name_that_is_no_hub_id_is_refused(cache, name):
    """`rm org/..` ended as an unexpected error: the library's own check was outside of the explained part."""
    with pytest.raises(NotAvailable):
        removal(name)


def test_a_broken_repository_goes_as_a_whole(cache):
    snapshot = place(cache)
    (snapshot / WEIGHTS).resolve().unlink()
    plan = removal(NAME)
    assert plan.commits == ()
    assert remove(plan) == plan.freed_bytes
    assert not (cache / "models--org--tiny").exists()


def test_what_a_link_out_of_the_cache_leads_to_stays(cache, tmp_path):
    snapshot = place(cache)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(tmp_path / "victim.txt")
    remove(removal(NAME))
    assert not (cache / "models--org--tiny").exists()


def test_what_cannot_be_removed_is_no_success(cache, monkeypatch):
    place(cache)
    plan = removal(NAME)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(NotAvailable, match=f"{NAME} could not be removed: .* is still there"):
        remove(plan)
