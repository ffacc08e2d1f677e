"""Names from outside: whatever a Hub calls a file, digest, commit or branch, it never becomes a path elsewhere."""

from __future__ import annotations

import os.path
from contextlib import suppress
from pathlib import PurePosixPath

import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.file_download import repo_folder_name
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.names import (
    COMMIT,
    DIGEST,
    HUB_ID,
    LONGEST_NAME_BYTES,
    REVISION,
    files_in,
    is_head,
    is_place,
    is_plain,
    is_weights,
    require_digest,
    require_hub_id,
    require_plain,
    require_revision,
    require_size,
    same_file,
    shown,
    wanted,
)

HOSTILE = st.lists(
    st.sampled_from(["..", ".", "/", "\\", "~", "a", "Z", "0" * 40, ":", "\0", "\n", " ", "%2e", "\u202e", "é", "--"]),
    max_size=8,
).map("".join)
ALPHABET = "".join(map(chr, range(0x250))) + "\u2028\u202e\ufeff\U0001f600"
NAMES = HOSTILE | st.text(ALPHABET, max_size=30)
BRIEF = settings(max_examples=40)


def stays_in(folder: str, name: str) -> bool:
    return os.path.normpath(f"{folder}/{name}").startswith(folder + "/")


def accepts(require, *values) -> bool:
    try:
        require(*values)
    except NotAvailable:
        return False
    return True


@BRIEF
@given(NAMES)
@example("../../victim.txt")
@example("..")
@example("/etc/passwd")
@example("config.json/../../x")
def test_a_file_name_that_is_accepted_is_one_name_in_the_folder_itself(name):
    if is_plain(name):
        path = PurePosixPath("/cache") / name
        assert (str(path.parent), path.name) == ("/cache", name)
        assert stays_in("/cache", name)


@BRIEF
@given(NAMES)
@example("../refs/main")
@example("a/../../b")
@example("/main")
def test_a_revision_that_is_accepted_stays_below_refs(revision):
    if accepts(require_revision, "org/tiny", revision):
        assert stays_in("/refs", revision)
        assert not revision.startswith("/")


@BRIEF
@given(NAMES | st.tuples(NAMES, NAMES).map("/".join))
@example("org/..")
@example("../..")
def test_a_hub_id_that_is_accepted_is_one_folder_of_the_cache(name):
    """huggingface_hub refuses more; what both accept is a folder's name."""
    if accepts(require_hub_id, name):
        with suppress(HFValidationError):
            folder = repo_folder_name(repo_id=name, repo_type="model")
            assert "/" not in folder
            assert stays_in("/cache", folder)


@BRIEF
@given(NAMES | st.integers() | st.none() | st.lists(NAMES, max_size=2) | st.booleans())
def test_a_digest_that_is_accepted_is_hex_digits_alone(value):
    if accepts(require_digest, "org/tiny", "config.json", value):
        assert len(value) in (40, 64)
        assert set(value) <= set("0123456789abcdef")


@BRIEF
@given(st.one_of(NAMES, st.integers(), st.floats(), st.booleans(), st.none()))
def test_a_size_that_is_accepted_is_a_count_of_bytes(value):
    if accepts(require_size, "org/tiny", "config.json", value):
        assert 0 <= require_size("org/tiny", "config.json", value) <= 1 << 50


@BRIEF
@given(NAMES | st.integers() | st.binary(max_size=80))
def test_a_foreign_value_in_a_message_is_one_short_line(value):
    assert len(shown(value)) <= 70
    assert shown(value).isprintable()


# Negative controls: a law about accepted names is worth nothing if none is accepted.


@pytest.mark.parametrize(
    "name", ["config.json", "model-00001-of-00002.safetensors", "Qwen's template.jinja", "モデル.json"]
)
def test_an_ordinary_file_name_is_accepted(name):
    assert require_plain("org/tiny", name) == name


@pytest.mark.parametrize("revision", [None, "main", "v1.0", "refs/pr/7", "a" * 40, "feature/fast-draft"])
def test_an_ordinary_revision_is_accepted(revision):
    require_revision("org/tiny", revision)


@pytest.mark.parametrize("name", ["org/tiny", "mlx-community/Qwen3-4B-4bit", "a/b.c_d"])
def test_an_ordinary_hub_id_is_accepted(name):
    require_hub_id(name)


@pytest.mark.parametrize("digest", ["0" * 40, "f" * 64])
def test_an_ordinary_digest_is_accepted(digest):
    assert require_digest("org/tiny", "config.json", digest) == digest


# Edges


@pytest.mark.parametrize(
    "name", ["", ".", "..", ". .", "a/b", "a\\b", "a:b", "a\0b", "a\nb", "\ud800", "\u202econfig.json"]
)
def test_a_name_that_could_be_more_than_a_name_is_refused(name):
    assert not is_plain(name)


def test_a_names_length_is_counted_in_bytes():
    assert is_plain("é" * (LONGEST_NAME_BYTES // 2))
    assert not is_plain("é" * (LONGEST_NAME_BYTES // 2) + "e")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (COMMIT, "a" * 40 + "\n"),
        (COMMIT, "A" * 40),
        (DIGEST, "a" * 41),
        (DIGEST, "a" * 64 + "\n"),
        (HUB_ID, "org/tiny\n"),
        (REVISION, "main\n"),
        (REVISION, ".hidden"),
        (REVISION, "a//b"),
    ],
)
def test_a_pattern_takes_the_whole_text_or_nothing(pattern, text):
    assert not pattern.fullmatch(text)


@pytest.mark.parametrize(
    "path",
    ["modeling.py", "pytorch_model.bin", "onnx/config.json", "._config.json", ".gitattributes", "README.md", "x.pkl"],
)
def test_code_pickles_and_folders_are_no_part_of_the_model(path):
    assert not wanted(path)


@pytest.mark.parametrize(
    "path", ["config.json", "model.safetensors", "tokenizer.model", "merges.txt", "chat_template.jinja"]
)
def test_what_mlx_lm_reads_is_part_of_the_model(path):
    assert wanted(path)


def test_only_safetensors_called_model_are_weights():
    names = [
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "adapter.safetensors",
        "model.safetensors.index.json",
    ]
    assert [is_weights(name) for name in names] == [True, True, False, False]


@pytest.mark.parametrize("path", ["mtp.safetensors", "mtp-00001-of-00002.safetensors", "mtp/model.safetensors"])
def test_a_head_in_files_of_its_own_is_part_of_the_model(path):
    assert wanted(path) and is_weights(path) and is_head(path) and require_plain("org/tiny", path) == path


@pytest.mark.parametrize(
    "path",
    [
        "mtp/config.json", "mtp/a/model.safetensors", "mtp/../model.safetensors", "mtp/", "mtp/.safetensors",
        "mtp/._model.safetensors", "mtpx/model.safetensors", "/mtp/model.safetensors", "MTP/model.safetensors",
        "other/mtp.safetensors", "mtp.py", "mtp//model.safetensors", "mtp\\model.safetensors",
    ],
)  # fmt: skip
def test_nothing_else_of_its_folder_is_and_no_other_folder(path):
    assert not (wanted(path) and is_place(path))


@BRIEF
@given(NAMES)
@example("mtp/../../victim.safetensors")
@example("mtp/..")
def test_a_place_that_is_accepted_is_a_name_in_one_of_two_folders(path):
    for tried in (path, f"mtp/{path}"):
        if accepts(require_plain, "org/tiny", tried):
            place = PurePosixPath("/cache") / tried
            assert str(place.parent) in ("/cache", "/cache/mtp") and stays_in("/cache", tried)


def test_files_are_those_of_the_folder_and_of_its_heads(tmp_path):
    for path in ("b.json", "a.json", "mtp/model.safetensors", "other/x.json"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"")
    assert list(files_in(tmp_path)) == ["a.json", "b.json", "other", "mtp/model.safetensors"]


def test_names_that_a_mac_takes_for_one_file_are_the_same():
    assert same_file("Config.json") == same_file("config.JSON")
    assert same_file("caf\u00e9.json") == same_file("cafe\u0301.json")
    assert same_file("a.json") != same_file("b.json")


def test_a_size_that_is_not_given_is_0():
    assert require_size("org/tiny", "config.json", None) == 0


@pytest.mark.parametrize("size", [-1, (1 << 50) + 1, True, "12", 1.5])
def test_a_size_that_is_none_is_refused_with_the_files_name(size):
    with pytest.raises(NotAvailable, match=r"the Hub gives config\.json of org/tiny the size "):
        require_size("org/tiny", "config.json", size)
