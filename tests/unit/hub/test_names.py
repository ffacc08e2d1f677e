"""Names from outside: what is plainly one is accepted, anything else is refused before it becomes a path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.core.errors import NotAvailable
from specdec_cli.hub import cache as names

WANTED = ["config.json", "model-00001-of-00002.safetensors", "tokenizer.model", "merges.txt", "chat_template.jinja"]
WANTED += ["mtp.safetensors", "mtp/model.safetensors"]
UNWANTED = ["modeling.py", "pytorch_model.bin", "onnx/config.json", "../config.json", "/etc/config.json", "..json"]
UNWANTED += ["._config.json", "mtp/config.json", "mtp/a/model.safetensors", "original/model.safetensors", "README.md"]
UNWANTED += [
    "a\\..\\x.json",
    "a\0.json",
    "x" * 201 + ".json",
    "a\x1b[2J.json",
    "config.json:x.json",
    "..",
    "mtp/../x.json",
]


def test_what_mlx_lm_reads_is_part_of_the_model_and_code_pickles_and_folders_are_not():
    assert [path for path in WANTED if not names.is_wanted(path)] == []
    assert [path for path in UNWANTED if names.is_wanted(path)] == []


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


def test_files_are_those_of_the_folder_and_of_its_heads(tmp_path):
    (tmp_path / "mtp").mkdir()
    for path in ("b.json", "a.json", "mtp/model.safetensors", "notes.md"):
        (tmp_path / path).touch()
    assert list(names.list_files(tmp_path)) == ["a.json", "b.json", "mtp/model.safetensors"]
