"""Answers of a given shape through a conversation, and what an answer may not say."""

import re

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import load as mlx_load
from mlx_lm.generate import generate_step

from fakes.drafting import open_session
from fakes.models import CHAT_TEMPLATE, byte_tokenizer, tiny_folder, write_tokenizer
from fakes.thinking import BEGIN, BIAS, END, STOPS
from specdec_cli.core.request import Constraint, Request
from specdec_cli.models.grammar import Bans
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.load import load

SHORT = Constraint("regex", "[a-p]{3,9}(x|yz){2,4}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("small")
    return tiny_folder(root / "t", seed=3), tiny_folder(root / "d", seed=3, noise=0.05)


@pytest.fixture(scope="module")
def small(folders):
    return open_session(Pair("small", *map(str, folders)))


@pytest.fixture(scope="module", params=[True, False], ids=["opened by the prompt", "opened by the model"])
def thinker(request, tmp_path_factory):
    opened = CHAT_TEMPLATE.replace("assistant\\n", "assistant\\n<think>")
    assert opened != CHAT_TEMPLATE
    folder, template = tmp_path_factory.mktemp("thinker") / "target", opened if request.param else CHAT_TEMPLATE
    tiny_folder(folder, seed=3, marks=("<think>", "</think>"), chat_template=template)
    return open_session(Pair("thinker", str(folder), str(folder)))


def test_a_model_that_thinks_does_so_first_and_then_keeps_the_shape(thinker):
    prompt, thought = thinker.pair.chat_tokens("Hi"), 0
    opened = thinker.pair.tokenizer.thinking(prompt).opened
    bias = BIAS if opened else (*BIAS[1:], (BEGIN, 12.0), (END, 12.0))
    for seed in range(3):
        request = Request(60, k=4, seed=seed, logit_bias=bias, sampling={"temperature": 1.0}, constraint=SHORT)
        finish = list(thinker.reply(prompt, request))[-1]
        plain = [step.token for step in thinker.plain(prompt, request)]
        assert list(finish.tokens) == [token for token in plain if token not in STOPS]
        first, answer = thinker.pair.tokenizer.thinking(prompt).split(finish.text)
        thought += bool(first) or BEGIN in finish.tokens
        assert not finish.complete or re.fullmatch(SHORT.text, answer)
    assert thought > 1


# What an answer may not say is never said, at every K, and all else is as mlx-lm would choose it.

PROMPT, MANY = [3, 4, 5, 6, 7], 24


@pytest.fixture(scope="module")
def pair(small):
    return small.pair


def said(pair, **options):
    *_, finish = pair.session().reply(PROMPT, max_tokens=MANY, **{"temperature": 0, **options})
    return finish


def spelled(pair, tokens):
    table = pair.tokenizer.table().tokens
    return b"".join(table.get(token, b"") for token in tokens)


def by_mlx_lm(pair, folder, words=(), least=0, ends=frozenset()):
    """Its greedy tokens, each the best that completes no word in the bytes so far and is no early end."""
    network, _ = mlx_load(str(folder))
    table = pair.tokenizer.table().tokens

    def masked(tokens, logits):
        so_far = [int(token) for token in tokens[len(PROMPT) :].tolist()]
        row = np.array(logits[0])
        for token in range(row.size):
            text = spelled(pair, so_far) + table.get(token, b"")
            early = token in ends and len(so_far) < least
            if early or any(text.endswith(word) or word in text for word in words):
                row[token] = -np.inf
        return mx.array(row)[None]

    found = []
    for token, _ in generate_step(mx.array(PROMPT), network, max_tokens=MANY, logits_processors=[masked]):
        if int(token) in ends:
            break
        found.append(int(token))
    return found


@pytest.mark.parametrize("k", [0, 4])
def test_a_bad_word_is_spelled_by_no_tokens(pair, folders, k):
    plain = said(pair, k=0)
    text = spelled(pair, plain.tokens)
    words = [text[4:6].decode("utf-8", "ignore"), text[9:12].decode("utf-8", "ignore")]
    words = [word for word in words if word]
    assert words
    finish = said(pair, k=k, bad_words=tuple(words))
    encoded = [word.encode() for word in words]
    assert all(word not in spelled(pair, finish.tokens) for word in encoded) and finish.tokens != plain.tokens
    assert (
        list(finish.tokens) == by_mlx_lm(pair, folders[0], encoded, 0, pair.tokenizer.stop_tokens)[: len(finish.tokens)]
    )
    assert said(pair, k=k, bad_words=f"{words[0]}~").tokens == plain.tokens  # a text alone is a word, and no letters


def test_a_bad_word_of_half_a_character_bans_nothing(pair):
    """As a stop text of one stops nothing; the answer failed."""
    assert said(pair, k=4, bad_words=("\ud83d",)).tokens == said(pair, k=4).tokens


@pytest.mark.parametrize("k", [0, 4])
def test_nothing_ends_an_answer_before_its_least_tokens(pair, folders, k):
    """The third token it would say is made its end: without `min_tokens` the answer has two."""
    end = said(pair, k=0).tokens[2]
    assert len(said(pair, k=k, stop_tokens=(end,)).tokens) == 2
    finish = said(pair, k=k, stop_tokens=(end,), min_tokens=12)
    ends = pair.tokenizer.stop_tokens | {end}
    assert len(finish.tokens) >= 12 and list(finish.tokens) == by_mlx_lm(pair, folders[0], (), 12, ends)


@pytest.mark.parametrize("k", [0, 4])
def test_the_targets_own_end_may_be_ignored(tmp_path, pair, folders, k):
    ended = tiny_folder(tmp_path / "t", seed=3)
    end = said(pair, k=0).tokens[2]
    write_tokenizer(ended, byte_tokenizer(), eos_token=byte_tokenizer().id_to_token(end))
    other = load(Pair("p", str(ended), str(folders[1])))
    assert len(said(other, k=k).tokens) == 2 and said(other, k=k).reason == "stop"
    finish = said(other, k=k, ignore_eos=True)
    assert (len(finish.tokens), finish.reason) == (MANY, "length")


def test_a_constraint_wins_where_both_together_would_allow_nothing(pair):
    finish = said(pair, k=4, constraint=Constraint("regex", "(yes|no)"), bad_words=("yes", "n"), min_tokens=30)
    assert finish.text in ("yes", "no") and finish.complete


def test_masks_are_those_of_every_position_of_a_draft():
    tokens = {0: b"a", 1: b"b", 2: b"ab", 3: b"xabx", 40: b"end"}
    bans = Bans(tokens, 64, (b"ab",), frozenset({40}), 2)

    def banned(draft):
        return [[t for t in tokens if not row[t // 32] >> (t % 32) & 1] for row in bans.masks(draft)]

    assert banned([0, 0]) == [[2, 3, 40], [1, 2, 3, 40], [1, 2, 3]] and bans.legal([0, 0, 1, 0]) == 2
    bans.advance([0])
    assert banned([]) == [[1, 2, 3, 40]] and bans.legal([40]) == 0
