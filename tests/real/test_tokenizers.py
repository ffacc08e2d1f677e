"""Six released tokenizers, each over a random network of its true size: which may draft for which, and why not."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from real import released
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.vocab import compare

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
# A pair that agrees, and what only one of the two has.
AGREE = {("qwen2_5", "qwen3"): "4 more, from id 151665 '<tool_response>'"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, qwen):
    root = tmp_path_factory.mktemp("vocabularies")
    made = {"qwen2_5": released.random_network(root / "qwen2_5", qwen, 151_936)}
    for name, vocabulary in released.VOCABULARIES.items():
        made[name] = released.random_network(
            root / name, released.had(released.tokenizer_files, vocabulary), vocabulary.entries
        )
    return made


@pytest.fixture(scope="module")
def tokenizers(folders):
    configs = {name: json.loads((folder / "config.json").read_text()) for name, folder in folders.items()}
    return {name: Tokenizer.load(folder, name, configs[name]) for name, folder in folders.items()}


def test_only_qwen_2_5_and_qwen_3_may_draft_for_each_other(tokenizers):
    for pair in permutations(tokenizers, 2):
        found = compare(*(tokenizers[name].table() for name in pair))
        extra = AGREE.get(tuple(sorted(pair)))
        assert (found.status == "compatible") == (extra is not None), (pair, found)
        assert (extra or "in the target and ") in found.reason


@pytest.mark.parametrize("text", ["Zürich\u00a0— 東京 🙂\n\tdef f(x):", " two  spaces", "<|im_end|>"])
def test_text_comes_back_as_it_was_and_its_pieces_are_those_of_the_stream(tokenizers, text):
    for name, tokenizer in tokenizers.items():
        stream, ids = tokenizer.stream(), tokenizer.encode(text)
        ids = [token for token in ids if token != tokenizer.table().roles.get("bos")]
        said = "".join(stream.step(token) for token in ids) + stream.finish()
        assert said.removeprefix(" " if not text.startswith(" ") else "") == text, name


@pytest.mark.parametrize(("target", "draft", "code"), [("qwen3", "qwen2_5", 0), ("gemma3", "gptoss", 4)])
def test_check_says_so_both_ways(command, folders, target, draft, code):
    for one, other in ((target, draft), (draft, target)):
        ended, out, err = command("check", "--target", folders[one], "--draft", folders[other])
        assert (ended, err) == (code, ""), out
        assert ("shared ids agree" if code == 0 else " in the target and ") in " ".join(out.split())
