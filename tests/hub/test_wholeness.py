"""Is a snapshot all there? From the manifest, else from what the files imply."""

from __future__ import annotations

import json

import pytest

from fakes.hub_cache import FILES, NAME, WEIGHTS, place
from specdec_cli.errors import NotAvailable
from specdec_cli.hub.comparing import Problem
from specdec_cli.hub.wholeness import is_compared, problems

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def missing(snapshot) -> list[str]:
    found = problems(NAME, snapshot)
    assert {problem.found for problem in found} <= {"missing"}
    return [problem.path for problem in found]


# With the manifest of a pull


def test_a_pulled_model_has_no_problem(cache):
    snapshot = place(cache)
    assert problems(NAME, snapshot) == ()
    assert is_compared(NAME, snapshot)


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_lost_file_is_missing(cache, path):
    snapshot = place(cache)
    (snapshot / path).unlink()
    assert missing(snapshot) == [path]
    assert not is_compared(NAME, snapshot)


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_cut_file_shows_both_sizes(cache, path):
    snapshot = place(cache)
    (snapshot / path).resolve().write_bytes(b"")
    assert problems(NAME, snapshot) == (Problem(path, f"{len(FILES[path])} B", "0 B"),)


def test_a_small_file_altered_in_place_is_found(cache):
    snapshot = place(cache)
    (snapshot / "config.json").resolve().write_bytes(b"[]")
    (found,) = problems(NAME, snapshot)
    assert (found.path, len(found.expected), len(found.found)) == ("config.json", 40, 40)


def test_weights_of_the_right_size_are_not_read(cache):
    """They take seconds a gigabyte: `pull --verify` reads them."""
    snapshot = place(cache)
    (snapshot / WEIGHTS).resolve().write_bytes(b"x" * len(FILES[WEIGHTS]))
    assert problems(NAME, snapshot) == ()


@pytest.mark.parametrize(("path", "is_one"), [("added.json", True), ("notes.md", False), ("._config.json", False)])
def test_only_a_file_that_could_be_the_models_counts_as_added(cache, path, is_one):
    snapshot = place(cache)
    (snapshot / path).write_bytes(b"")
    assert problems(NAME, snapshot) == ((Problem(path, "nothing", "added"),) if is_one else ())


@pytest.mark.parametrize("compared", [True, False])
def test_a_link_out_of_the_cache_is_refused(cache, tmp_path, compared):
    snapshot = place(cache, compared=compared)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(tmp_path / "victim.txt")
    with pytest.raises(NotAvailable, match=r"leads out of the model cache, to .*victim"):
        problems(NAME, snapshot)


# Without one


def test_another_tools_whole_model_has_no_problem_and_is_not_compared(cache):
    snapshot = place(cache, compared=False)
    assert problems(NAME, snapshot) == ()
    assert not is_compared(NAME, snapshot)


@pytest.mark.parametrize("path", sorted(FILES))
def test_every_model_needs_a_configuration_a_vocabulary_and_weights(cache, path):
    snapshot = place(cache, compared=False)
    (snapshot / path).unlink()
    assert missing(snapshot) == [path]


def test_a_link_whose_blob_is_gone_is_missing(cache):
    snapshot = place(cache, FILES | {"generation_config.json": b"{ }"}, compared=False)
    (snapshot / "generation_config.json").resolve().unlink()
    assert missing(snapshot) == ["generation_config.json"]


@pytest.mark.parametrize("vocabulary", ["tokenizer.model", "vocab.txt", "qwen.tiktoken", "spiece.model"])
def test_any_vocabulary_will_do(cache, vocabulary):
    snapshot = place(cache, {"config.json": b"{}", WEIGHTS: b"w", vocabulary: b""}, compared=False)
    assert missing(snapshot) == []


def test_foreign_weights_are_the_checkpoints_business(cache):
    snapshot = place(cache, {"config.json": b"{}", "tokenizer.json": b"", "pytorch_model.bin": b"p"}, compared=False)
    assert missing(snapshot) == []


def test_one_part_of_two_names_the_other(cache):
    snapshot = place(cache, {"config.json": b"{}", "tokenizer.json": b"", TWO: b"w"}, compared=False)
    assert missing(snapshot) == [ONE]


def index(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"w{i}": shard for i, shard in enumerate(shards)}}).encode()


def test_an_index_names_its_shards(cache):
    files = {"config.json": b"{}", "tokenizer.json": b"", INDEX: index("model-a.safetensors", "model-b.safetensors")}
    snapshot = place(cache, files | {"model-a.safetensors": b"w"}, compared=False)
    assert missing(snapshot) == ["model-b.safetensors"]


@pytest.mark.parametrize("shard", ["../victim.txt", "/etc/passwd", "a/b.safetensors", ".."])
def test_a_shard_that_is_no_file_of_the_folder_is_refused(cache, shard):
    snapshot = place(cache, FILES | {INDEX: index(WEIGHTS, shard)}, compared=False)
    with pytest.raises(NotAvailable, match="as a shard, which is no file of its folder"):
        problems(NAME, snapshot)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"weight_map": 3}', b'{"weight_map": []}', b"\xff"])
def test_an_unreadable_index_names_no_shard(cache, text):
    assert missing(place(cache, FILES | {INDEX: text}, compared=False)) == []


def test_a_name_cannot_make_us_count_to_a_billion(cache):
    files = FILES | {"model-1-of-999999999.safetensors": b"w"}
    assert missing(place(cache, files, compared=False)) == []


# Heads in files of their own

HEAD = {"mtp/model.safetensors": b"h" * 50, "mtp.safetensors": b"h" * 60}


@pytest.mark.parametrize("path", sorted(HEAD))
def test_a_head_that_was_pulled_and_is_lost_or_cut_is_a_problem(cache, path):
    snapshot = place(cache, FILES | HEAD)
    assert problems(NAME, snapshot) == ()
    (snapshot / path).resolve().write_bytes(b"")
    assert problems(NAME, snapshot) == (Problem(path, f"{len(HEAD[path])} B", "0 B"),)
    (snapshot / path).unlink()
    assert missing(snapshot) == [path]


def test_a_head_that_is_not_in_the_commit_is_added(cache):
    snapshot = place(cache)
    (snapshot / "mtp").mkdir()
    (snapshot / "mtp" / "model.safetensors").write_bytes(b"x")
    assert problems(NAME, snapshot) == (Problem("mtp/model.safetensors", "nothing", "added"),)


def test_a_link_in_the_folder_of_heads_that_leads_out_is_refused(cache):
    snapshot = place(cache, FILES | HEAD)
    (snapshot / "mtp" / "model.safetensors").unlink()
    (snapshot / "mtp" / "model.safetensors").symlink_to(cache.parents[1] / "victim.txt")
    with pytest.raises(NotAvailable, match=r"model\.safetensors of org/tiny is a link that leads out"):
        problems(NAME, snapshot)


def test_a_folder_of_heads_that_is_a_link_out_is_refused(cache):
    snapshot = place(cache)
    (cache.parents[1] / "heads").mkdir()
    (snapshot / "mtp").symlink_to(cache.parents[1] / "heads")
    with pytest.raises(NotAvailable, match="mtp of org/tiny is a link that leads out"):
        problems(NAME, snapshot)


def test_without_a_manifest_a_head_that_lost_its_blob_is_missing(cache):
    snapshot = place(cache, FILES | HEAD, compared=False)
    (snapshot / "mtp" / "model.safetensors").resolve().unlink()
    assert missing(snapshot) == ["mtp/model.safetensors"]
