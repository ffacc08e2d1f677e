"""Law: the words under a constraint are those of plain decoding by mlx-lm and llguidance, one token at a time.

Also behind a thinking, at the very token that ends it, wherever in a draft that comes: such a test names the fault of
another runtime that it would have found, by project and thread. All in float32.
"""

import json
import re
import time
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from mlx_lm.generate import generate_step

from fakes.drafting import drafters_of
from fakes.models import byte_tokenizer, tiny_network
from fakes.products import every, spread
from fakes.thinking import BEGIN, BIAS, END, STOPS, THINKS, V, thinking_tokenizer
from specdec_cli.core.kinds import DRAFTERS, FORCED
from specdec_cli.core.request import Constraint
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.models.grammar import Vocabulary
from specdec_cli.models.text import Thinking

# The other side, which shares nothing with the engine: mlx-lm's loop, and llguidance one token at a time.

BYTES, WIDTH = byte_tokenizer().to_str(), 259
TEXTS = {
    "schema": LLMatcher.grammar_from_json_schema,
    "regex": LLMatcher.grammar_from_regex,
    "grammar": LLMatcher.grammar_from_lark,
}
JSON = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
}


def plainly_constrained(network, constraint, prompt, max_tokens, noise=None):
    """Token ids, the stop token included. `noise(position)` [V] is added before the best is taken."""
    made = TEXTS[constraint.kind]
    grammar = made(constraint.text, overrides=JSON) if constraint.kind == "schema" else made(constraint.text)
    matcher = LLMatcher(LLTokenizer(BYTES, n_vocab=WIDTH, eos_token=sorted(STOPS)), grammar, log_level=0)

    def mask():
        return np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")[:WIDTH] > 0

    return plainly_masked(network, prompt, max_tokens, lambda token: matcher.try_consume_tokens([token]), mask, noise)


def plainly_masked(network, prompt, max_tokens, take, mask, noise=None, bias=0.0):
    """Token ids by mlx-lm's loop, up to the first stop token, that one included.

    `take(token)` hears of each, and `mask()` [V] of bool says what may be next.
    `bias` [V] and `noise(position)` [V] are added before the best is taken.
    """

    def masked(tokens, logits):
        if tokens.size > len(prompt):
            take(int(tokens[-1]))
        logits = mx.where(mx.array(mask()), logits.astype(mx.float32), -mx.inf)
        return logits + mx.array(bias) + (noise(tokens.size) if noise else 0.0)

    found = []
    steps = generate_step(
        mx.array(prompt), network, max_tokens=max_tokens, sampler=lambda x: mx.argmax(x, -1), logits_processors=[masked]
    )
    for token, _ in steps:
        found.append(int(token))
        if token in STOPS:
            break
    return found


class Watched:
    """Masks of `expression` behind the end of the thinking, which is found by comparing ids; free before."""

    def __init__(self, tokenizer, expression: str, special: bool) -> None:
        made = LLTokenizer(tokenizer.to_str(), n_vocab=V, eos_token=sorted(STOPS))
        self._matcher = LLMatcher(made, LLMatcher.grammar_from_regex(f"\n{{0,2}}({expression})"), log_level=0)
        never = [*range(3), *([BEGIN] if special else [])]
        self._free = np.array([token not in never for token in range(V)])
        self._thinks = True

    def take(self, token: int) -> None:
        if self._thinks:
            self._thinks = token != END
        else:
            assert self._matcher.consume_token(token) or token in STOPS

    def mask(self) -> np.ndarray:
        """[V] of bool."""
        if self._thinks:
            return self._free
        return np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")[:V] > 0


def plainly_thinking(network, watched, prompt, max_tokens, noise=None):
    """Token ids by mlx-lm's loop, the stop token included; `noise(position)` [V] is added before the best is taken."""
    added = np.zeros(V, np.float32)
    for token, value in BIAS:
        added[token] = value
    return plainly_masked(network, prompt, max_tokens, watched.take, watched.mask, noise, added)


PROMPT = [50, 61, 72, 50, 61]
CONSTRAINTS = {
    "object": Constraint(
        "schema",
        json.dumps(
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 6},
                    "kind": {"enum": ["small", "large", "smallish"]},
                    "sizes": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 0, "maximum": 99},
                        "maxItems": 3,
                    },
                },
                "required": ["name", "kind", "sizes"],
                "additionalProperties": False,
            }
        ),
    ),
    "regex": Constraint("regex", "(ab|ac)+x{2,4}(yes|no)?"),
    "lark": Constraint("grammar", 'start: "begin " (WORD ", ")+ "end"\nWORD: /[a-d]{1,3}/'),
}


def rounds_of(networks, matcher, prompt=PROMPT, drafter="model", k=4, rule="token", sampling=None, seed=0, tokens=90):
    target, draft = (CachedModel(network, "tiny") for network in networks)
    made = make_rule(rule, Sampler(sampling or Sampling(), seed, prompt, target.vocab_size, matcher))
    drafters, context = drafters_of(drafter, target, draft, made, k, matcher), list(prompt)
    found = list(decode(target, drafters, made, context, tokens, STOPS, time.perf_counter))
    assert target.length == len(context) - 1
    return found


def emitted(rounds):
    return [token for round in rounds for token in round.emitted]


@pytest.fixture(scope="module")
def networks():
    return tiny_network(seed=1), tiny_network(seed=1, noise=0.08)


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.of_model(BYTES, WIDTH, STOPS)


@pytest.mark.parametrize(("drafter", "name", "k"), spread(DRAFTERS, CONSTRAINTS, [8, 1, 3, 0]))
def test_greedy_text_is_that_of_plain_constrained_decoding(networks, vocabulary, name, drafter, k):
    constraint = CONSTRAINTS[name]
    rounds = rounds_of(networks, vocabulary.matcher(constraint), drafter=drafter, k=k)
    assert emitted(rounds) == plainly_constrained(networks[0], constraint, PROMPT, 90)


def test_forced_tokens_cost_no_drafter_and_save_passes(networks, vocabulary):
    """With nobody drafting, the grammar alone makes one pass yield several tokens."""
    constraint = CONSTRAINTS["object"]
    rounds = rounds_of(networks, vocabulary.matcher(constraint), drafter="none", k=0)
    forced = [round for round in rounds if round.drafter == FORCED.name]
    assert forced and all(round.accepted == len(round.draft) for round in forced)
    assert max(len(round.draft) for round in forced) > 5
    assert len(rounds) < 0.7 * len(emitted(rounds))


@pytest.mark.parametrize("drafter", ["model", "none"])
def test_logits_are_queued_before_the_host_computes_their_masks(networks, vocabulary, monkeypatch, drafter):
    """So the device works meanwhile, on a draft's step as on the target's pass."""
    seen, matcher, queue = [], vocabulary.matcher(CONSTRAINTS["object"]), device.queue
    masks = matcher.masks
    monkeypatch.setattr(device, "queue", lambda array: (seen.append(array.shape), queue(array))[1])
    monkeypatch.setattr(matcher, "masks", lambda draft: (seen.append(f"{len(draft) + 1} rows"), masks(draft))[1])
    rounds_of(networks, matcher, drafter=drafter, k=3, tokens=20)
    for shape, asked in pairwise(seen):
        if isinstance(asked, str):
            assert shape in ((int(asked.split()[0]), WIDTH), (1, WIDTH)), (shape, asked)
    assert any(isinstance(asked, str) for asked in seen)


# Behind a thinking: the shape begins at the token after its end.

THOUGHT = [50, 61, 72, 50, BEGIN]
EXPRESSION = "[a-p]{3,9}(x|yz){2,4}"
SHAPE, TAGS = Constraint("regex", EXPRESSION), Thinking("<think>", "</think>", opened=True)
FREE = Sampling(logit_bias=BIAS)


@pytest.fixture(scope="module")
def thinkers():
    return tiny_network(THINKS, seed=3), tiny_network(THINKS, seed=3, noise=0.03)


@pytest.fixture(scope="module")
def vocabularies():
    return {special: Vocabulary.of_model(thinking_tokenizer(special).to_str(), V, STOPS) for special in (False, True)}


@pytest.mark.parametrize(
    ("k", "drafter", "special"), every([4, 1, 3, 8, 0, 2, 5, 6], ["model", "ngram"], [False, True])
)
def test_greedy_text_is_that_of_plain_decoding_that_watches_for_the_tag(thinkers, vocabularies, special, k, drafter):
    """The grammar was not switched on where the tag came inside a draft: vLLM #31858, #34650, #34241, #36138."""
    watched = Watched(thinking_tokenizer(special), EXPRESSION, special)
    expected = plainly_thinking(thinkers[0], watched, THOUGHT, 80)
    rounds = rounds_of(
        thinkers, vocabularies[special].matcher(SHAPE, TAGS), THOUGHT, drafter, k, "token", FREE, tokens=80
    )
    assert emitted(rounds) == expected and END in expected


@pytest.mark.parametrize(("seed", "k"), spread(range(6), [3, 6, 0], quick=3))
def test_coupled_text_is_that_of_plain_decoding_with_the_same_noise(thinkers, vocabularies, k, seed):
    noise = Noise(seed)
    watched = Watched(thinking_tokenizer(False), EXPRESSION, False)
    expected = plainly_thinking(
        thinkers[0], watched, THOUGHT, 80, lambda position: noise.gumbel("target", position, V)[None]
    )
    sampling = Sampling(1.0, logit_bias=BIAS)
    rounds = rounds_of(
        thinkers, vocabularies[False].matcher(SHAPE, TAGS), THOUGHT, "model", k, "coupled", sampling, seed, 80
    )
    assert emitted(rounds) == expected


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("block", marks=pytest.mark.slow),
        *(pytest.param(n, marks=pytest.mark.full) for n in ("token", "coupled", "match")),
    ],
)
def test_the_tag_comes_at_every_place_of_a_draft_and_the_answer_keeps_its_shape(thinkers, vocabularies, rule):
    """Also guards the equality tests: the tag must be accepted inside drafts, and followed by accepted tokens there.

    Rows behind an accepted tag were left unmasked elsewhere: vLLM #54437, #53046.
    """
    tokenizer, places, after = thinking_tokenizer(False), set(), 0
    for seed in range(12):
        matcher = vocabularies[False].matcher(SHAPE, TAGS)
        rounds = rounds_of(thinkers, matcher, THOUGHT, "model", 4, rule, Sampling(0.9, logit_bias=BIAS), seed, 80)
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
