"""Answers of a given shape through a conversation."""

import json

import pytest
from jsonschema import validate

from fakes.drafting import open_session
from specdec_cli.errors import UsageError
from specdec_cli.events import RoundDone
from specdec_cli.kinds import FORCED
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Constraint, Request

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "sizes": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
CONSTRAINT = Constraint("schema", json.dumps(SCHEMA))


@pytest.fixture(scope="module")
def session():
    return open_session(Pair("demo", "specdec:demo/target", "specdec:demo/draft"))


def reply(session, **options):
    request = Request(**{"max_tokens": 60, "k": 4, "constraint": CONSTRAINT} | options)
    return list(session.reply(session.raw_tokens("import json\n"), request, raw=True))


@pytest.mark.parametrize("k", [0, 4, "auto"])
@pytest.mark.parametrize("more", [{}, {"sampling": {"temperature": 1.0}, "seed": 5}], ids=["greedy", "coupled"])
def test_every_k_gives_the_plain_constrained_answer(session, k, more):
    request = Request(max_tokens=60, k=0, constraint=CONSTRAINT, **more)
    prompt = session.raw_tokens("import json\n")
    plain = [step.token for step in session.plain(prompt, request)]
    events = reply(session, k=k, **more)
    said = [token for event in events if isinstance(event, RoundDone) for token in event.round.emitted]
    assert said == plain


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_that_ends_is_valid(session, seed):
    finish = reply(session, max_tokens=300, sampling={"temperature": 0.8}, seed=seed)[-1]
    if finish.reason == "stop":
        validate(json.loads(finish.text), SCHEMA)
    else:
        assert finish.reason == "length" and finish.text.startswith('{"name": "')


def test_what_is_forced_is_drafted_by_the_grammar(session):
    rounds = [event.round for event in reply(session, drafter="none") if isinstance(event, RoundDone)]
    assert any(round.drafter == FORCED.name and round.accepted == len(round.draft) > 2 for round in rounds)


def test_the_next_reply_is_free_again(session):
    free = list(session.reply("def f(", Request(max_tokens=8, k=2), raw=True))[-1].text
    reply(session)
    assert list(session.reply("def f(", Request(max_tokens=8, k=2), raw=True))[-1].text == free


def test_a_stop_string_beside_it_is_refused(session):
    with pytest.raises(UsageError, match="could cut an answer that must have the shape of a schema"):
        reply(session, stop=("}",))


def test_what_cannot_be_enforced_is_refused_before_the_first_event(session):
    with pytest.raises(UsageError, match="cannot be enforced"):
        next(session.reply("x", Request(constraint=Constraint("regex", "(")), raw=True))
