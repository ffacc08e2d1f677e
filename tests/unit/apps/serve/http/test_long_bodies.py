"""Whatever one client sends, the others are answered, and it is refused as soon as that is certain."""

from dataclasses import replace
from threading import Event

import httpx
import pytest

from fakes.desk import ScriptedDesk
from fakes.server import posted, serving, until
from specdec_cli.core.template import NO_VALUES
from specdec_cli.models.tokenizer import Tokenizer, unwatched

pytestmark = pytest.mark.slow
CHAT, LONG_WORDS = "/v1/chat/completions", "two words " * 100_000


def asked(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


@pytest.fixture
def slowly(monkeypatch):
    """Long texts are encoded once `go` is set, and each is counted."""
    go, seen, encode = Event(), [], Tokenizer.continuation

    def waiting(self, text, between=unwatched):
        between(len(text) // self._longest_token)
        if "two words" in text:
            seen.append(len(text))
            assert go.wait(30)
        return encode(self, text)

    monkeypatch.setattr(Tokenizer, "continuation", waiting)
    yield go, seen
    go.set()


@pytest.fixture
def served(model, slowly):
    """(url, desk, statuses) of a server in whose context those words fit."""
    desk, records = ScriptedDesk(["a"] * 8), []
    with serving(replace(model, context_limit=2_000_000), desk, records) as (url, _):
        yield url, desk, records
    desk.close()


def test_a_short_chat_is_answered_while_long_ones_are_encoded(served, slowly):
    """The bug: one thread encoded everything, and a chat of two letters waited 12 s beside a body of 1 MB."""
    url, desk, _ = served
    long = [posted(url, CHAT, asked(LONG_WORDS + str(number))) for number in range(3)]
    until(lambda: slowly[1])
    assert httpx.post(url + CHAT, json=asked("Hi"), timeout=20).status_code == 200
    assert len(desk.jobs) == 1
    slowly[0].set()
    until(lambda: len(desk.jobs) == 4, 60)
    for connection in long:
        connection.close()


def refused(model, limit, text, **more):
    desk = ScriptedDesk(["a"])
    with serving(replace(model, context_limit=limit), desk) as (url, _):
        said = httpx.post(url + CHAT, json=asked(text, **more), timeout=60)
    desk.close()
    assert not desk.jobs
    return said.status_code, said.json()["error"]


def test_a_body_that_cannot_fit_is_refused_before_it_is_encoded_and_else_counted_whole(model, slowly):
    """By the longest token's bytes at first, then by what was counted."""
    status, error = refused(model, 2048, LONG_WORDS)
    assert status == 400 and error["code"] == "context_length_exceeded" and not slowly[1]
    assert error["message"].startswith("prompt is too long: at least ")
    slowly[0].set()
    tokens = len(model.prompt([{"role": "user", "content": LONG_WORDS}], NO_VALUES))
    status, error = refused(model, tokens - 9, LONG_WORDS)
    assert (status, error["message"]) == (400, f"prompt is too long: {tokens} tokens > {tokens - 10} maximum")


def test_a_prediction_of_many_contexts_is_refused_and_others_reach_the_desk_as_ids(model, slowly):
    """The bug: 4.8 MB took half a minute and 1.2 GB in the thread that everybody's answers are computed in."""
    said = {"prediction": {"type": "content", "content": LONG_WORDS}}
    slowly[0].set()
    status, error = refused(model, 2048, "Hi", **said)
    assert status == 413 and error["message"].startswith("the prediction is too long: at least ")
    desk = ScriptedDesk(["a"])
    with serving(model, desk) as (url, _):
        said["prediction"]["content"] = "two words"
        assert httpx.post(url + CHAT, json=asked("Hi", **said), timeout=20).status_code == 200
    desk.close()
    assert desk.jobs[0].job.request.predict == tuple(model.tokenizer.continuation("two words"))
