"""Law: drafts that are scored over some tokens only change nothing that is said, at any temperature.

The tiny target says tokens that no draft can have, so that corrections bring them.
"""

import pytest

from fakes.chat import tokenizer_in
from fakes.heads import agreeing_head, cached_head, tiny_target
from fakes.models import tiny_network
from laws.exact_law import assert_follows
from laws.seeded_answers import PROMPT, SMALL, TIERED, K, answers
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import MtpDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

FIRST, SMALL_FIRST = 40, 9


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    target = tiny_target("qwen3_5")
    head = cached_head(target, agreeing_head(target), first=FIRST, always=(2,))
    tokenizer = tokenizer_in(tmp_path_factory.mktemp("tokenizer"))
    return LoadedPair(Pair("tiny", "t", "h"), ("t", "h"), tokenizer, Slot(target, head))


def assert_engine_follows(rule_for, sampling, first, n=1000):
    """N = 1000 answers of K + 2 tokens; odds to fail by chance as in `test_engine_law`."""
    target = CachedModel(tiny_network(SMALL, seed=1), "small")
    head = cached_head(target, agreeing_head(target), first=first)

    def begin(seed, context):
        rule = rule_for(Sampler(sampling, seed, PROMPT, target.vocab_size))
        drafter = MtpDrafter(head.fresh(), target, rule)
        target.commit(context, min(target.length, drafter.keeps(context)))
        return Drafters(drafter, K), rule

    texts, rounds = answers(target, begin, n)
    assert {(len(round.draft), round.accepted) for round in rounds} >= {(K, 0), (K, 1), (K, K)}
    assert_follows((target.network.module, tiny_network(SMALL, seed=1, noise=0.1)), PROMPT, texts, sampling)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "sampling"), TIERED)
def test_answers_from_a_cut_vocabulary_follow_the_target(rule, sampling):
    assert_engine_follows(lambda sampler: make_rule(rule, sampler), sampling, SMALL_FIRST)
