"""The hybrid that ships: recurrent layers and an MTP head that was really trained, on real text.

Everything is deterministic.
"""

from dataclasses import replace

import pytest

from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.load_head import agreement, load_head, own_texts
from specdec_cli.hub import locate
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head
from specdec_cli.pairs.registry import packaged_file, read_registry
from specdec_cli.session.load import load
from specdec_cli.session.ready import PROMPTS
from specdec_cli.session.slot import Slot

CODE = (
    "def read_lines(path):\n",
    "import heapq\n\n\nclass Queue:\n    def push(self, item):\n",
    "def mean(values):\n    total = 0\n    for value in values:\n",
)


@pytest.fixture(scope="module")
def files():
    return find_head(read_checkpoint(locate("specdec:demo/hybrid"), "hybrid"))


@pytest.fixture(scope="module")
def pair(files):
    """The packaged pair with its head, whose check is what the tests below are about."""
    loaded = load(read_registry(packaged_file(), "packaged").find("demo-hybrid"), drafter="none")
    target = loaded.first.target
    head = load_head(files, target.network.hidden.output_head.hidden_size)
    return replace(loaded, first=Slot(target, CachedHead(Head(head, target.network, "hybrid"))))


@pytest.fixture(scope="module")
def texts(pair):
    """What the target says to the prompts that its head is tried on, and after some code; read once for all tests."""
    prompts = [pair.message_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
    prompts = [*prompts, *map(pair.text_tokens, CODE)]
    return list(own_texts(pair.first.target, prompts, pair.tokenizer.stop_tokens))


def test_it_has_recurrent_and_attention_layers_and_a_head_stored_as_original_repositories_do(pair, files):
    assert pair.first.target.cache_kinds == ("ArraysCache", "KVCache")
    assert files.zero_centred and len(files.tensors) == 15


@pytest.mark.slow
def test_the_head_agrees_best_as_its_family_is_read(pair, texts, files):
    readings = files, replace(files, zero_centred=False)
    found = [agreement(load_head(reading, 192), pair.first.target, texts) for reading in readings]
    print(*found, sep="\n")
    assert found[0].kappa > 0.5 and found[0].share > found[1].share + 0.05
