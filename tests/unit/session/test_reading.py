"""Between two chunks of a long prompt the caller hears how far it was read, and may turn to other work."""

import pytest

from fakes.drafting import open_session
from specdec_cli.core.events import Prefill, Reading, RoundDone
from specdec_cli.core.request import Request
from specdec_cli.pairs.pair import Pair


@pytest.fixture(scope="module")
def pair(tiny_pair):
    return Pair("tiny", *map(str, tiny_pair))


@pytest.fixture
def short_chunks(monkeypatch):
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 30)


def events_of(pair, tokens, cancelled=lambda: False, **more):
    request = Request(**{"max_tokens": 20, "k": 4, "drafter": "model"} | more)
    return list(open_session(pair).reply([3 + i % 90 for i in range(tokens)], request, cancelled))


def test_every_chunk_but_the_last_is_told_of_target_and_of_draft(pair, short_chunks):
    events = events_of(pair, 100)
    readings = [event for event in events if isinstance(event, Reading)]
    assert [(event.reader, event.read_tokens) for event in readings] == [
        *[("target", 30), ("target", 60), ("target", 90)],
        *[("draft", 30), ("draft", 60), ("draft", 90)],
    ]
    order = [type(event) for event in events]
    assert order[1:4] == [Reading] * 3 and order[4:6] == [Prefill, RoundDone] and order[6:9] == [Reading] * 3


def test_a_prompt_of_one_chunk_has_the_events_that_it_always_had(pair, short_chunks):
    assert not any(isinstance(event, Reading) for event in events_of(pair, 30))
    assert any(isinstance(event, Reading) for event in events_of(pair, 32))


def test_chunks_change_no_token_and_no_count_of_seconds(pair, monkeypatch):
    whole = events_of(pair, 100)[-1]
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 30)
    chunked = events_of(pair, 100)[-1]
    assert chunked.tokens == whole.tokens
    assert chunked.stats["draft_prefill_seconds"] > 0


@pytest.mark.parametrize("chunks", [2, 5])
def test_a_reply_cancelled_between_chunks_ends_there_and_the_next_is_right(pair, short_chunks, chunks):
    session, seen = open_session(pair), list[Reading]()
    prompt, request = [3 + i % 90 for i in range(100)], Request(max_tokens=20, k=4, drafter="model")
    for event in session.reply(prompt, request, lambda: len(seen) >= chunks):
        if isinstance(event, Reading):
            seen.append(event)
    assert len(seen) == chunks and event.reason == "interrupted" and len(event.tokens) == (chunks > 3)
    assert list(session.reply(prompt, request))[-1].tokens == events_of(pair, 100)[-1].tokens


def test_a_generator_closed_between_chunks_leaves_a_slot_that_goes_on(pair, short_chunks):
    session, request = open_session(pair), Request(max_tokens=20, k=4, drafter="model")
    prompt = [3 + i % 90 for i in range(100)]
    for held in (30, 60, 90, 100, 100):  # the last two were closed while the draft read
        events = session.reply(prompt, request)
        next(event for event in events if isinstance(event, Reading))
        events.close()
        assert session.slot.target.length == held
    assert list(session.reply(prompt, request))[-1].tokens == events_of(pair, 100)[-1].tokens
