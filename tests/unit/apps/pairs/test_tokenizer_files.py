"""A model without a usable tokenizer is refused alike by every command, by name; and each file is parsed once."""

from __future__ import annotations

import json
import shutil

import pytest
import tokenizers

import specdec_cli
from fakes.models import tiny_folder
from specdec_cli.core.errors import NotAvailable

COMMANDS = [
    (["check"], []),
    (["run", "-p"], ["hi"]),
    (["serve", "--print-config", "opencode", "-p"], []),
    pytest.param(["serve", "--port", "0", "-p"], [], marks=pytest.mark.slow),  # it binds a socket first
]
SPECIAL_ONLY = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}


@pytest.fixture
def bare(tmp_path):
    """A folder with configuration and weights alone, of a type that transformers makes an empty tokenizer for."""
    folder = tiny_folder(tmp_path / "bare")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(SPECIAL_ONLY))
    return folder


@pytest.mark.parametrize(("command", "more"), COMMANDS)
def test_a_folder_without_a_tokenizer_is_refused_by_name_at_every_door(specdec, bare, command, more):
    """`check` said "runs", and `run` ended in a StopIteration without a word."""
    code, message, hint = specdec.refused(*command, bare, *more)
    assert (code, message) == (3, f"no tokenizer in {bare}: tokenizer.json is needed") and "download" in hint


def test_a_drafts_folder_is_held_to_the_same(specdec, bare, tiny_pair):
    for arguments in (["check", "--target", tiny_pair[0]], ["run", "hi", "--target", tiny_pair[0]]):
        assert specdec.refused(*arguments, "--draft", bare)[:2] == (
            3,
            f"no tokenizer in {bare}: tokenizer.json is needed",
        )
    with pytest.raises(NotAvailable, match=f"no tokenizer in {bare}"):
        specdec_cli.load(target=str(bare))


WRONG = {
    "empty": ("tokenizer.json", "", "tokenizer.json is empty (0 bytes)"),
    "no object": ("tokenizer.json", "[]", "tokenizer.json: it holds a list"),
    "empty model": ("tokenizer.model", "", "tokenizer.model is empty (0 bytes)"),
    "broken model": ("tokenizer.model", "no protobuf", "tokenizer.model: "),
    "empty tiktoken": ("qwen.tiktoken", "", "qwen.tiktoken is empty (0 bytes)"),
    "no merges": ("vocab.json", '{"a": 0}', "tokenizer.json is needed"),
    "no tokens": ("tokenizer.json", None, "tokenizer.json: it has special tokens only"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_empty_or_broken_tokenizer_file_is_named(specdec, bare, tiny_pair, name):
    file, text, said = WRONG[name]
    if text is None:
        values = json.loads((tiny_pair[0] / "tokenizer.json").read_text())
        values["model"]["vocab"] = {}
        text = json.dumps(values)
    (bare / file).write_text(text)
    code, message, _ = specdec.refused("check", bare)
    assert code == 3 and said in message and str(bare) in message and "without a word" not in message
    assert specdec.refused("run", "-p", bare, "hi")[:2] == (3, message)


def test_a_vocabulary_beside_its_merges_is_a_tokenizer(specdec, bare, tiny_pair):
    """What mlx_lm and transformers load is loaded: no tokenizer.json is asked for where they need none."""
    vocabulary = json.loads((tiny_pair[0] / "tokenizer.json").read_text())["model"]["vocab"]
    (bare / "vocab.json").write_text(json.dumps(vocabulary))
    (bare / "merges.txt").write_text("#version: 0.2\n")
    assert specdec("check", bare)[0] == 0
    assert specdec("run", "-p", bare, "--raw", "-n", "2", "hi")[0] == 0


@pytest.mark.slow
def test_a_repository_without_a_tokenizer_is_refused_before_its_weights_are_downloaded(world, bare):
    world.hub.commit("org/bare", bare)
    done = world("pull", "--target", "org/bare")
    assert (done.code, done.errors()[0]) == (3, "no tokenizer in org/bare: tokenizer.json is needed")
    assert world.weight_bytes_sent() == 0


@pytest.fixture
def parsed(monkeypatch):
    """The texts of every tokenizer.json that Python or tokenizers parsed, in order."""
    seen, decode, from_file = [], json.JSONDecoder.decode, tokenizers.Tokenizer.from_file

    def counted(decoder, text, *more):
        if '"added_tokens"' in text and '"vocab"' in text:
            seen.append(text)
        return decode(decoder, text, *more)

    monkeypatch.setattr(json.JSONDecoder, "decode", counted)
    monkeypatch.setattr(tokenizers.Tokenizer, "from_file", lambda path: (seen.append(path), from_file(path))[1])
    return seen


@pytest.mark.parametrize(("command", "more"), [(["run", "-n", "2", "-p"], ["--raw", "hi"]), (["check"], [])])
def test_a_tokenizer_is_parsed_only_by_mlx_lm_and_by_transformers(specdec, tmp_path, parsed, command, more):
    """Choosing a draft, checking it and loading parsed the same megabytes again: seconds before the first word."""
    assert specdec(*command, tiny_folder(tmp_path / "m", seed=1), *more)[0] == 0
    assert 1 <= len(parsed) <= 3  # mlx_lm's, and transformers' of the file and of its added tokens


def test_a_draft_with_files_of_its_own_is_parsed_as_often_and_one_with_the_targets_never(specdec, tmp_path, parsed):
    target, draft = (tiny_folder(tmp_path / name, seed=1) for name in ("target", "draft"))
    arguments = ["run", "-n", "2", "--raw", "hi", "--target", target, "--draft", draft]
    assert specdec(*arguments)[0] == 0
    assert (alone := len(parsed)) <= 3
    shutil.copy(draft / "tokenizer.json", draft / "copy.json")  # one more file: it is no longer alike
    assert specdec(*arguments)[0] == 0 and len(parsed) <= 2 * alone


def test_a_changed_tokenizer_is_read_again(specdec, tmp_path):
    folder = tiny_folder(tmp_path / "m", seed=1)
    assert specdec("check", folder)[0] == 0
    (folder / "tokenizer.json").write_text("{}")
    assert specdec.refused("check", folder)[0] == 3
