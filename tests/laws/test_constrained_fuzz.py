"""Law: whatever the schema or expression, an answer keeps its shape, or the shape is refused in words.

Everything is drawn from the number of the case, so a case that fails fails again.
"""

import json
import re
import time
from random import Random

import pytest
from jsonschema import Draft202012Validator

from fakes.drafting import drafter_of
from fakes.grammar import BYTES, STOPS, V
from fakes.models import byte_tokenizer, tiny_network
from fakes.random_shapes import random_regex, random_schema
from fakes.schema_suite import spelled, wander
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.auto import ConstrainedDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.errors import UsageError
from specdec_cli.kinds import DRAFTERS, RULES
from specdec_cli.models.grammar import Vocabulary
from specdec_cli.request import Constraint

pytestmark = pytest.mark.timeout(900)
# One sixth of the cases is slow, the rest full.
EACH_PART = pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.full if part else pytest.mark.slow) for part in range(6)]
)
SCHEMAS, REGEXES, ANSWERS, PARTS, PROMPT = 300, 200, 3, 6, [50, 61, 72]


@pytest.fixture(scope="module")
def networks():
    return tiny_network(seed=1), tiny_network(seed=1, noise=0.05)


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.of_model(BYTES, V, STOPS)


def answered(networks, matcher, rng, max_tokens=120):
    """(text, whether it ended), at a random K, drafter, rule, temperature and seed."""
    target, draft = (CachedModel(network, "tiny") for network in networks)
    sampling = Sampling(rng.choice([0.0, 0.7, 1.3]))
    rule = make_rule(rng.choice(list(RULES)), Sampler(sampling, rng.randrange(999), PROMPT, V, matcher))
    k = rng.choice([0, 1, 3, 6])
    inner = drafter_of(rng.choice(list(DRAFTERS)), target, draft, rule, k)
    drafter = ConstrainedDrafter(*inner, matcher)
    length, context = drafter.length(inner[1]), list(PROMPT)
    rounds = list(decode(target, drafter, rule, length, context, max_tokens, STOPS, time.perf_counter))
    tokens = [token for round in rounds for token in round.emitted]
    ended = tokens[-1] in STOPS
    return byte_tokenizer().decode(tokens[: len(tokens) - ended]), ended


@EACH_PART
def test_documents_of_random_schemas_are_valid_or_the_schema_is_refused(networks, vocabulary, part):
    """N = 300 schemas in six parts, three answers to each. Negative controls are those of the suite's test."""
    ended = refused = 0
    for case in range(part, SCHEMAS, PARTS):
        rng = Random(case)
        schema = random_schema(rng)
        for _ in range(ANSWERS):
            try:
                matcher = vocabulary.matcher(Constraint("schema", json.dumps(schema)))
            except UsageError as error:
                assert error.hint and "\n" not in error.message
                refused += 1
                break
            text, end = answered(networks, matcher, rng)
            assert matcher.complete or not end, (case, text)
            ended += end
            if end:
                Draft202012Validator(schema).validate(json.loads(text))
    cases = SCHEMAS // PARTS
    assert ended > 0.5 * (cases - refused) * ANSWERS and refused < 0.4 * cases, (ended, refused, cases)


@EACH_PART
def test_answers_to_random_expressions_match_and_what_matches_is_taken(networks, vocabulary, part):
    """N = 200 expressions in six parts; five texts that match and two random walks each, and one answer."""
    ended = 0
    for case in range(part, REGEXES, PARTS):
        rng = Random(10_000 + case)
        expression, sample = random_regex(rng)
        constraint = Constraint("regex", expression)
        for text in {sample(rng) for _ in range(5)}:
            assert re.fullmatch(expression, text) and spelled(constraint, text), (expression, text)
        walks = [wander(constraint, seed) for seed in range(2)]
        text, end = answered(networks, vocabulary.matcher(constraint), rng)
        ended += end
        for said in [*filter(lambda walk: walk is not None, walks), *([text] if end else [])]:
            assert re.fullmatch(expression, said), (expression, said)
    assert ended > 0.5 * REGEXES / PARTS
