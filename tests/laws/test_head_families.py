"""Law: whichever family a head is of, and whatever its layer keeps, a conversation says what its target says.

Tiny random targets of each family with a head that agrees now and then; latent, grouped and plain caches.
"""

import mlx.core as mx
import pytest

from fakes.chat import tokenizer_in
from fakes.heads import quieten
from fakes.raw_families import CONFIGS, raw_family
from fakes.raw_qwen import write_checkpoint
from laws.test_heads import PROMPTS, asked, rounds_of, said
from specdec_cli.engine.heads.cached import CachedHead, Head
from specdec_cli.engine.heads.load import load_head
from specdec_cli.engine.load import load
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import read_head
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

SIZE, SHARE = 64, 0.2
PROMPT = [token % 90 + 3 for token in PROMPTS[0]]


def agreeing(family, folder):
    """(target, head module): both say mostly what the last token makes likely."""
    trunk, own = raw_family(family)
    target = load(read_checkpoint(write_checkpoint(folder / "target", trunk, CONFIGS[family]), "t"))
    head = load_head(read_head(write_checkpoint(folder / "head", own, CONFIGS[family]), "m"), SIZE)
    for module in (target.network.module, head):
        quieten(module, SHARE)
    weight = head.fc.weight
    token, state = mx.split(weight, 2, axis=1) if head.recipe.embedding_first else mx.split(weight, 2, axis=1)[::-1]
    parts = [mx.eye(SIZE) + SHARE * token, SHARE * state]
    head.fc.weight = mx.concatenate(parts if head.recipe.embedding_first else parts[::-1], axis=1)
    for path, norm in head.named_modules():
        if path in ("norm", "pre_fc_norm_embedding"):
            norm.weight = mx.ones_like(norm.weight)
    mx.eval(head.parameters(), target.network.module.parameters())
    return target, head


@pytest.fixture(scope="module", params=CONFIGS)
def pair(request, tmp_path_factory):
    target, module = agreeing(request.param, tmp_path_factory.mktemp(request.param))
    tokenizer = tokenizer_in(tmp_path_factory.mktemp("tokenizer"))
    head = CachedHead(Head(module, target.network, "h"))
    return LoadedPair(Pair("tiny", "t", "h"), ("t", "h"), tokenizer, Slot(target, None, head))


@pytest.mark.parametrize(("k", "seed"), [(1, None), (4, 11), pytest.param(8, None, marks=pytest.mark.slow)])
def test_every_k_says_the_same(pair, k, seed):
    """At temperature 0, and under one seed at 0.8."""
    plain = said(pair.session().reply(*asked(PROMPT, 0, seed, "none", 24)))
    events = list(pair.session().reply(*asked(PROMPT, k, seed, tokens=24)))
    assert said(events) == plain
    rounds = [round for round in rounds_of(events) if round.draft]
    assert any(round.accepted for round in rounds) and {round.drafter for round in rounds} == {"mtp"}


def test_turns_with_edits_keep_the_words_and_the_head_no_more_than_the_target(pair):
    session, turn = pair.session(), list(PROMPT)
    for number, drafter in enumerate(["model", "none", "model", "model"]):
        text = said(session.reply(*asked(turn, 3, None, drafter, 12)))
        assert text == said(pair.session().reply(*asked(turn, 0, None, "none", 12)))
        assert session.slot.head.cached <= len(turn) + len(text) - 1
        turn = [*turn[: 50 if number == 2 else None], *text, 9, 8, 7 + number]
