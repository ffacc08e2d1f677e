"""The hybrid that ships: recurrent layers and an MTP head that was really trained, on real text.

Its self-check is tried with each wrong way to use the head, made on purpose. Everything is deterministic.
"""

from dataclasses import replace
from itertools import islice

import pytest
from mlx.utils import tree_flatten, tree_unflatten

from specdec_cli.engine.heads.agreement import Variant, is_norm
from specdec_cli.engine.heads.cached import CachedHead, Head
from specdec_cli.engine.heads.check import check, own_texts
from specdec_cli.engine.heads.load import load_head
from specdec_cli.engine.heads.mtp import QWEN
from specdec_cli.engine.hidden import LAST
from specdec_cli.errors import Refused
from specdec_cli.events import RoundDone
from specdec_cli.hub import locate
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head
from specdec_cli.pairs.registry import packaged_file, read_registry
from specdec_cli.request import Request
from specdec_cli.session.heads import PROMPTS
from specdec_cli.session.load import Slot, load

CODE = (
    "def read_lines(path):\n",
    "import heapq\n\n\nclass Queue:\n    def push(self, item):\n",
    "def mean(values):\n    total = 0\n    for value in values:\n",
)
HONEST = Variant(QWEN, zero_centred=True)
WRONG = {
    "norms not shifted": replace(HONEST, zero_centred=False),
    "the state first": replace(HONEST, recipe=replace(QWEN, embedding_first=False)),
    "the token of the state's position": replace(HONEST, recipe=replace(QWEN, lag=1)),
    "carried before the norm": replace(HONEST, recipe=replace(QWEN, carries="raw")),
    "the state before the last norm": replace(HONEST, recipe=replace(QWEN, reads=LAST)),
}
FLOOR = (0.55, 0.35, 0.2)
# Of the agreements at steps 1 to 3 together, which more text changes a little.
LUCK = 0.1
# Of what it starts from; one that takes long to tell costs little.
LEAST_COST = 0.05
WRONG["all at once"] = Variant(replace(QWEN, reads=LAST, embedding_first=False, lag=1, carries="raw"), False)


@pytest.fixture(scope="module")
def files():
    return find_head(read_checkpoint(locate("specdec:demo/hybrid"), "hybrid"))


@pytest.fixture(scope="module")
def pair(files):
    """The packaged pair with its head, whose check is what the tests below are about."""
    loaded = load(read_registry(packaged_file(), "packaged").find("demo-hybrid"), drafter="none")
    target = loaded.first.target
    head = load_head(files, target.network.hidden.readout.hidden_size)
    return replace(loaded, first=Slot(target, None, CachedHead(Head(head, target.network, "hybrid"))))


@pytest.fixture(scope="module")
def texts(pair):
    """What the target says to the check's own prompts and after some code; read once for all tests."""
    prompts = [pair.message_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
    prompts = [*prompts, *map(pair.text_tokens, CODE)]
    return list(islice(own_texts(pair.first.target, prompts, pair.tokenizer.stop_tokens), 60))


@pytest.fixture(scope="module")
def honest(pair, texts, files):
    """What the check finds where the head is used as its family is."""
    return checked(pair, texts, files, HONEST)


def checked(pair, texts, files, as_if, change=None):
    head = load_head(files, 192, as_if.zero_centred, as_if.recipe)
    if change:
        change(head)
    return check(head, pair.first.target, as_if.zero_centred, iter(texts))


def said(pair, prompt, k=0, seed=None, drafter="mtp"):
    sampling = {"temperature": 0.8} if seed is not None else {}
    request = Request(max_tokens=32, k=k, seed=seed, sampling=sampling, drafter=drafter)
    events = pair.session().reply(pair.text_tokens(prompt), request, raw=True)
    rounds = [event.round for event in events if isinstance(event, RoundDone)]
    return [token for round in rounds for token in round.emitted], rounds


def test_it_has_recurrent_and_attention_layers_and_a_head_stored_as_original_repositories_do(pair, files):
    assert pair.first.target.cache_kinds == ("ArraysCache", "KVCache")
    assert files.zero_centred and len(files.tensors) == 15


@pytest.mark.slow
def test_the_head_is_used_as_its_family_is_and_agrees_with_the_targets_own_words(honest):
    print(honest.summary)
    assert not honest.repaired and honest.guesses and honest.odds < 1e-6
    assert all(share > least for share, least in zip(honest.by_step, FLOOR, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("mistake", WRONG)
def test_each_wrong_way_to_use_it_is_found_and_repaired(pair, texts, files, honest, mistake):
    found = checked(pair, texts, files, WRONG[mistake])
    print(f"{mistake}: {found.summary}")
    assert found.repaired and found.variant == HONEST
    assert sum(found.by_step) > sum(honest.by_step) - LUCK
    assert sum(found.known_by_step) < sum(found.by_step) - LEAST_COST


@pytest.mark.slow
def test_norms_that_were_shifted_twice_are_repaired(pair, texts, files, honest):
    """What the file holds is already multiplied with, and its layout says that it is less 1."""
    found = checked(pair, texts, files, HONEST, shifted)
    print(found.summary)
    assert found.repaired and sum(found.by_step) > sum(honest.by_step) - LUCK


def shifted(head):
    norms = [(name, value + 1) for name, value in tree_flatten(head.parameters()) if is_norm(name, value.ndim)]
    head.update(tree_unflatten(norms))


def disordered(head):
    """The rows of the matrix that joins token and state, in the wrong order: as another model's."""
    head.fc.weight = head.fc.weight[::-1]


@pytest.mark.slow
def test_a_head_that_is_damaged_is_refused_with_the_numbers(pair, texts, files):
    found = checked(pair, texts, files, HONEST, disordered)
    print(f"{found.by_step[0]:.1%} of {found.positions}, chance {found.chance:.1%}")
    with pytest.raises(Refused, match=r"guesses \d+ % of \d+ tokens of hybrid, and chance \d+ %"):
        found.require_guesses("hybrid", "hybrid")


@pytest.mark.parametrize("k", [2, 8])
@pytest.mark.parametrize("seed", [None, 7])
def test_it_says_what_the_target_says(pair, k, seed):
    """At temperature 0, and under one seed at 0.8. Every K, and all else, is in `laws/test_heads.py`."""
    drafted, rounds = said(pair, CODE[0], k, seed)
    assert drafted == said(pair, CODE[0], 0, seed)[0]
    assert any(round.accepted for round in rounds) and any(round.rejected is not None for round in rounds)
