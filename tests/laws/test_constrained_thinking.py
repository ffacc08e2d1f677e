"""Law: the shape begins behind the thinking, at that very token, wherever in a draft it comes.

Each test names the fault of another runtime that it would have found, by project and thread.
"""

import re
import time

import pytest

from fakes.drafting import drafters_of
from fakes.models import tiny_network
from fakes.products import every, spread
from fakes.thinking import BEGIN, BIAS, END, STOPS, THINKS, V, Watched, plainly_thinking, thinking_tokenizer
from specdec_cli.core.request import Constraint
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.models.grammar import Vocabulary
from specdec_cli.models.text import Thinking

PROMPT = [50, 61, 72, 50, BEGIN]
EXPRESSION = "[a-p]{3,9}(x|yz){2,4}"
SHAPE, TAGS = Constraint("regex", EXPRESSION), Thinking("<think>", "</think>", opened=True)
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def networks():
    return tiny_network(THINKS, seed=3), tiny_network(THINKS, seed=3, noise=0.03)


@pytest.fixture(scope="module")
def vocabularies():
    return {special: Vocabulary.of_model(thinking_tokenizer(special).to_str(), V, STOPS) for special in (False, True)}


def rounds_of(networks, matcher, k, rule="token", sampling=None, seed=0, drafter="model", prompt=PROMPT):
    target, draft = (CachedModel(network, "tiny") for network in networks)
    made = make_rule(rule, Sampler(sampling or Sampling(logit_bias=BIAS), seed, prompt, V, matcher))
    named = isinstance(drafter, str)
    found = drafters_of(drafter, target, draft, made, k, matcher) if named else Drafters(drafter, k, constraint=matcher)
    context = list(prompt)
    return list(decode(target, found, made, context, 80, STOPS, time.perf_counter))


def emitted(rounds):
    return [token for round in rounds for token in round.emitted]


@pytest.mark.parametrize(
    ("k", "drafter", "special"), every([4, 1, 3, 8, 0, 2, 5, 6], ["model", "ngram"], [False, True])
)
def test_greedy_text_is_that_of_plain_decoding_that_watches_for_the_tag(networks, vocabularies, special, k, drafter):
    """The grammar was not switched on where the tag came inside a draft: vLLM #31858, #34650, #34241, #36138."""
    watched = Watched(thinking_tokenizer(special), EXPRESSION, special)
    expected = plainly_thinking(networks[0], watched, PROMPT, 80)
    rounds = rounds_of(networks, vocabularies[special].matcher(SHAPE, TAGS), k, drafter=drafter)
    assert emitted(rounds) == expected and END in expected


@pytest.mark.parametrize(("seed", "k"), spread(range(6), [3, 6, 0], quick=3))
def test_coupled_text_is_that_of_plain_decoding_with_the_same_noise(networks, vocabularies, k, seed):
    noise = Noise(seed)
    watched = Watched(thinking_tokenizer(False), EXPRESSION, False)
    expected = plainly_thinking(
        networks[0], watched, PROMPT, 80, lambda position: noise.gumbel("target", position, V)[None]
    )
    sampling = Sampling(1.0, logit_bias=BIAS)
    rounds = rounds_of(networks, vocabularies[False].matcher(SHAPE, TAGS), k, "coupled", sampling, seed)
    assert emitted(rounds) == expected


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("block", marks=pytest.mark.slow),
        *(pytest.param(n, marks=pytest.mark.full) for n in ("token", "coupled", "match")),
    ],
)
def test_the_tag_comes_at_every_place_of_a_draft_and_the_answer_keeps_its_shape(networks, vocabularies, rule):
    """Also guards the equality tests: the tag must be accepted inside drafts, and followed by accepted tokens there.

    Rows behind an accepted tag were left unmasked elsewhere: vLLM #54437, #53046.
    """
    tokenizer, places, after = thinking_tokenizer(False), set(), 0
    for seed in range(12):
        matcher = vocabularies[False].matcher(SHAPE, TAGS)
        rounds = rounds_of(networks, matcher, 4, rule, Sampling(0.9, logit_bias=BIAS), seed)
        for round in rounds:
            accepted = round.draft[: round.accepted]
            if END in accepted:
                places.add(accepted.index(END))
                after += len(accepted) - 1 - accepted.index(END)
        text = emitted(rounds)
        if text[-1] in STOPS:
            thought, _, answer = tokenizer.decode(text[:-1]).partition("</think>")
            assert re.fullmatch(f"\n{{0,2}}{EXPRESSION}", answer) and "</think>" not in thought
    assert after > 0 and len(places) > 1
