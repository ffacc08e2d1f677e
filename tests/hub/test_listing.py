"""What the Hub says of one revision, looked at before it is used. The Hub is a namespace."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fakes.hub_cache import COMMIT, NAME, OTHER_COMMIT
from specdec_cli.errors import NotAvailable
from specdec_cli.hub import listing, manifest
from specdec_cli.hub.listing import Listed, ask, require_model

SHA256, GIT_SHA1 = "a" * 64, "b" * 40
WEIGHTS = "model.safetensors"
pytestmark = pytest.mark.usefixtures("cache")


def sibling(path, size=2, blob_id=GIT_SHA1, lfs=None):
    return SimpleNamespace(rfilename=path, size=size, blob_id=blob_id, lfs=lfs)


def big(path=WEIGHTS, sha256=SHA256, size=1000):
    return sibling(path, lfs=SimpleNamespace(sha256=sha256, size=size))


@pytest.fixture
def hub(monkeypatch):
    """Lets the Hub say this."""

    def says(*siblings, sha=COMMIT, name=NAME):
        answer = SimpleNamespace(id=name, sha=sha, siblings=list(siblings))
        monkeypatch.setattr(listing, "_info", lambda name, revision: answer)

    return says


def refusal(revision=None, pinned=False) -> str:
    with pytest.raises(NotAvailable) as error:
        ask(NAME, revision, pinned)
    return error.value.message


def test_small_files_have_gits_digest_and_big_ones_sha256(hub):
    hub(sibling("config.json"), big(), sibling("README.md"))
    assert ask(NAME, None, False) == (
        NAME,
        COMMIT,
        [Listed("config.json", 2, None, GIT_SHA1), Listed(WEIGHTS, 1000, SHA256, None)],
    )


def test_a_mirror_may_give_neither_sizes_nor_digests(hub):
    hub(sibling("config.json", None, None), sibling(WEIGHTS, None, None))
    assert ask(NAME, None, False)[2] == [Listed("config.json", 0, None, None), Listed(WEIGHTS, 0, None, None)]


def test_a_hostile_name_that_is_no_part_of_the_model_is_never_used(hub):
    hub(sibling("config.json"), big(), sibling("../../victim.txt"), sibling("/etc/passwd.json"))
    assert [file.path for file in ask(NAME, None, False)[2]] == ["config.json", WEIGHTS]


@pytest.mark.parametrize("path", ["a\\..\\b.json", "C:config.json", "x\0.json", "a" * 300 + ".json"])
def test_a_hostile_name_that_looks_like_the_models_is_refused(hub, path):
    hub(sibling("config.json"), big(), sibling(path))
    assert refusal().startswith(f"the Hub lists a file of {NAME} whose name is none: ")


def test_a_name_that_is_no_text_is_no_hubs(hub):
    hub(sibling("config.json"), big(), sibling(7))
    assert "does not answer like a Hub" in refusal()


@pytest.mark.parametrize("sha", ["main", "../../x", "A" * 40, 7, ["c" * 40]])
def test_a_commit_that_is_none_is_refused(hub, sha):
    hub(sibling("config.json"), big(), sha=sha)
    assert refusal().startswith(f"the Hub says that {NAME} is at the commit ")


def test_a_listing_without_a_commit_is_refused(hub):
    hub(sibling("config.json"), big(), sha=None)
    assert refusal() == f"the Hub names no commit for {NAME}"


def test_another_commit_than_the_pinned_one_is_refused(hub):
    hub(sibling("config.json"), big(), sha=OTHER_COMMIT)
    assert refusal(COMMIT, True) == f"the Hub answers with commit {OTHER_COMMIT} of {NAME} when asked for {COMMIT}"


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (big(sha256="b" * 40), "digest"),
        (big(sha256="../x"), "digest"),
        (big(size=-1), "size"),
        (sibling(WEIGHTS, blob_id="..", size=2), "digest"),
        (sibling(WEIGHTS, size="many"), "size"),
    ],
)
def test_a_digest_or_size_that_is_none_is_refused(hub, bad, word):
    hub(sibling("config.json"), bad)
    assert f"the Hub gives {WEIGHTS} of {NAME} the {word} " in refusal()


@pytest.mark.parametrize("other", ["Config.json", "conFig.json"])
def test_two_names_of_one_file_are_refused(hub, other):
    hub(sibling("config.json"), big(), sibling(other))
    assert refusal() == f"the Hub lists both config.json and {other} for {NAME}: one file's name"


def test_a_commit_that_changed_since_it_was_pulled_is_refused(hub):
    manifest.write(NAME, COMMIT, [manifest.Entry("config.json", 2, "d" * 40)])
    hub(sibling("config.json"), big())
    assert refusal().endswith("was pulled; a commit never changes")


def test_what_a_mirror_leaves_out_an_earlier_pull_of_the_commit_knows(hub):
    manifest.write(NAME, COMMIT, [manifest.Entry("config.json", 2, "d" * 40)])
    hub(sibling("config.json", None, None), big())
    assert ask(NAME, None, False)[2][0] == Listed("config.json", 2, None, "d" * 40)


def test_another_kind_of_digest_is_no_contradiction(hub):
    manifest.write(NAME, COMMIT, [manifest.Entry("config.json", 2, "d" * 64)])
    hub(sibling("config.json"), big())
    assert ask(NAME, None, False)[2][0] == Listed("config.json", 2, None, GIT_SHA1)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["config.json", "pytorch_model.bin"], "has no model*.safetensors, only pytorch_model.bin"),
        (["config.json", "original/model.safetensors"], "has no model*.safetensors, only original/model.safetensors"),
        (["README.md"], "has no model*.safetensors, only 1 other file"),
        ([WEIGHTS], "has weights but no config.json"),
    ],
)
def test_a_repository_that_mlx_lm_cannot_load_is_refused(paths, message):
    with pytest.raises(NotAvailable) as error:
        require_model(NAME, paths)
    assert error.value.message == f"{NAME} {message}"


@pytest.mark.parametrize(
    ("answered", "taken"),
    [
        (NAME.upper(), NAME.upper()),
        ("other/model", NAME),
        ("../" + NAME, NAME),
        (None, NAME),
        (7, NAME),
    ],
)
def test_the_hubs_own_spelling_is_taken_and_no_other_name(hub, answered, taken):
    hub(sibling("config.json"), big(), name=answered)
    assert ask(NAME, None, False)[0] == taken
