"""Answers of a given shape through a conversation."""

import json
import re
from dataclasses import replace

import pytest
from jsonschema import validate

from fakes.drafting import open_session
from fakes.grammar import BEGIN, BIAS, END, STOPS, THINKS, thinking_tokenizer
from fakes.models import CHAT_TEMPLATE, tiny_folder, write_tokenizer
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import RoundDone
from specdec_cli.core.kinds import FORCED
from specdec_cli.core.request import Constraint, Request
from specdec_cli.pairs.pair import Pair

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
SHORT = Constraint("regex", "[a-p]{3,9}(x|yz){2,4}")


@pytest.fixture(scope="module")
def session():
    return open_session(Pair("demo", "specdec:demo/target", "specdec:demo/draft"))


def reply(session, **options):
    request = Request(**{"max_tokens": 60, "k": 4, "constraint": CONSTRAINT} | options)
    return list(session.reply(session.pair.text_tokens("import json\n"), request, raw=True))


@pytest.mark.parametrize("seed", range(2))
def test_an_answer_that_ends_is_valid(session, seed):
    finish = reply(session, max_tokens=300, sampling={"temperature": 0.8}, seed=seed)[-1]
    if finish.reason == "stop":
        validate(json.loads(finish.text), SCHEMA)
    else:
        assert finish.reason == "length" and finish.text.startswith('{"name": "')


def test_what_is_forced_is_drafted_by_the_grammar(session):
    rounds = [event.round for event in reply(session, drafter="none") if isinstance(event, RoundDone)]
    assert any(round.drafter == FORCED.name and round.accepted == len(round.draft) > 2 for round in rounds)


def test_a_stop_string_beside_it_is_refused(session):
    with pytest.raises(UsageError, match="could cut an answer that must match a schema"):
        reply(session, stop=("}",))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("small") / "target", seed=3)
    return open_session(Pair("small", str(folder), str(folder)))


def said_after(session, request, cancelled=lambda: False):
    finish = list(session.reply("import json", request, cancelled, raw=True))[-1]
    return finish.tokens, finish.complete


@pytest.mark.parametrize(("how", "rounds"), [("closed", 0), ("cancelled", 3), ("failed", 1)])
def test_an_answer_that_was_broken_off_leaves_nothing_to_the_next(small, how, rounds):
    """Grammar, several answers to one prompt, and an abort in the middle of them crashed the engine: vLLM #11484."""
    request = Request(max_tokens=30, k=3, seed=4, sampling={"temperature": 1.0}, constraint=CONSTRAINT)
    one, seen = small.pair.session(), []
    for attempt in range(3):
        seen.clear()
        again = replace(request, attempt=attempt)
        stream = one.reply("import json", again, lambda: how == "cancelled" and len(seen) >= rounds, raw=True)
        for event in stream:
            seen.extend([event] * isinstance(event, RoundDone))
            if len(seen) >= rounds and how != "cancelled":
                break
        if how == "failed":
            with pytest.raises(ZeroDivisionError):
                stream.throw(ZeroDivisionError)
        stream.close()
    for shape in (CONSTRAINT, SHORT, None):
        asked = replace(request, constraint=shape)
        assert said_after(one, asked) == said_after(small.pair.session(), asked)


@pytest.fixture(scope="module", params=[True, False], ids=["opened by the prompt", "opened by the model"])
def thinker(request, tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("thinker") / "target", THINKS, seed=3)
    opened = CHAT_TEMPLATE.replace("assistant\\n", "assistant\\n<think>")
    assert opened != CHAT_TEMPLATE
    write_tokenizer(folder, thinking_tokenizer(False), chat_template=opened if request.param else CHAT_TEMPLATE)
    return open_session(Pair("thinker", str(folder), str(folder)))


def test_a_model_that_thinks_does_so_first_and_then_keeps_the_shape(thinker):
    prompt, thought = thinker.pair.chat_tokens("Hi"), 0
    opened = thinker.pair.tokenizer.thinking(prompt).opened
    bias = BIAS if opened else (*BIAS[1:], (BEGIN, 12.0), (END, 12.0))
    for seed in range(4):
        request = Request(80, k=4, seed=seed, logit_bias=bias, sampling={"temperature": 1.0}, constraint=SHORT)
        finish = list(thinker.reply(prompt, request))[-1]
        plain = [step.token for step in thinker.plain(prompt, request)]
        assert list(finish.tokens) == [token for token in plain if token not in STOPS]
        first, answer = thinker.pair.tokenizer.thinking(prompt).split(finish.text)
        thought += bool(first) or BEGIN in finish.tokens
        assert not finish.complete or re.fullmatch(SHORT.text, answer)
    assert thought > 1
