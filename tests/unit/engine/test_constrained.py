"""The loop under a constraint, against plain constrained decoding by mlx-lm and llguidance, in float32."""

import json
import time
from itertools import pairwise

import pytest

from fakes.drafting import drafters_of
from fakes.grammar import BYTES, STOPS, V, plainly_constrained
from fakes.models import tiny_network
from fakes.products import spread
from specdec_cli.core.kinds import DRAFTERS, FORCED
from specdec_cli.core.request import Constraint
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.models.grammar import Vocabulary

COLD = Sampling()
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
CLOCK = time.perf_counter


@pytest.fixture(scope="module")
def networks():
    return tiny_network(seed=1), tiny_network(seed=1, noise=0.08)


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.of_model(BYTES, V, STOPS)


def rounds_of(
    networks,
    matcher,
    drafter="model",
    k=4,
    rule="token",
    sampling=COLD,
    seed=0,
    max_tokens=90,
    clock=CLOCK,
):
    target, draft = (CachedModel(network, "tiny") for network in networks)
    sampler = Sampler(sampling, seed, PROMPT, V, matcher)
    rule = make_rule(rule, sampler)
    named = isinstance(drafter, str)
    made = drafters_of(drafter, target, draft, rule, k, matcher) if named else Drafters(drafter, k, constraint=matcher)
    context = list(PROMPT)
    found = list(decode(target, made, rule, context, max_tokens, STOPS, clock))
    assert target.length == len(context) - 1
    return found


def emitted(rounds):
    return [token for round in rounds for token in round.emitted]


@pytest.mark.parametrize(("drafter", "name", "k"), spread(DRAFTERS, CONSTRAINTS, [8, 1, 3, 0]))
def test_greedy_text_is_that_of_plain_constrained_decoding(networks, vocabulary, name, drafter, k):
    constraint = CONSTRAINTS[name]
    expected = plainly_constrained(networks[0], constraint, PROMPT, 90)
    rounds = rounds_of(networks, vocabulary.matcher(constraint), drafter, k)
    assert emitted(rounds) == expected


def test_forced_tokens_cost_no_drafter_and_save_passes(networks, vocabulary):
    """With nobody drafting, the grammar alone makes one pass yield several tokens."""
    constraint = CONSTRAINTS["object"]
    rounds = rounds_of(networks, vocabulary.matcher(constraint), "none", 0)
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
    rounds_of(networks, matcher, drafter, k=3, max_tokens=20)
    for shape, asked in pairwise(seen):
        if isinstance(asked, str):
            assert shape in ((int(asked.split()[0]), V), (1, V)), (shape, asked)
    assert any(isinstance(asked, str) for asked in seen)
