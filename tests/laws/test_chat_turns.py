"""Every turn of a chat is what a fresh run on the same rendered ids says, and reads only what is new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.chat import chat_with, networks, only_ascii, recorded, tokenizer_in

KINDS = {"plain": "qwen3", "windowed": "gemma3_text", "hybrid": "qwen3_5"}
COUPLED = {"sampling": {"temperature": 0.8}, "seed": 11}
MESSAGES = ("hello there", "and then?", "why", "how so, exactly?", "well")


EACH = ["plain", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("windowed", "hybrid"))]


@pytest.fixture(scope="module", params=EACH)
def pair(request, tmp_path_factory):
    return networks(KINDS[request.param]), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


def fresh_tokens(pair, ids, request):
    """What a session that has read nothing yet says."""
    session = recorded(*pair)
    *_, finish = session.reply(ids, request)
    return finish.tokens


def test_a_stopped_reply_is_history_as_far_as_it_came(pair):
    """The turn after Ctrl-C equals one of a conversation that had the partial text all along."""
    session = recorded(*pair)
    talk, _, _ = chat_with(session, max_tokens=24, logit_bias=only_ascii(pair[1]))
    talk.ask(MESSAGES[0])
    presses = iter([False] * 3)
    reply = session.reply
    session.reply = lambda ids, request, cancelled, **more: reply(ids, request, lambda: next(presses, True), **more)
    talk.ask(MESSAGES[1])
    session.reply = reply
    assert session.replies[-1][3].reason == "interrupted"
    partial = talk.conversation.turns[-1].answer
    assert partial.text and partial.reason == "interrupted"
    talk.ask(MESSAGES[2])
    ids, request, prefill, finish = session.replies[-1]
    messages = [
        {"role": "user", "content": MESSAGES[0]},
        {"role": "assistant", "content": talk.conversation.turns[0].answer.text},
        {"role": "user", "content": MESSAGES[1]},
        {"role": "assistant", "content": partial.text},
        {"role": "user", "content": MESSAGES[2]},
    ]
    assert ids == session.pair.message_tokens(messages)
    assert finish.tokens == fresh_tokens(pair, ids, request)
    assert prefill.cached_tokens > 0


def test_attempts_are_equal_for_every_k_and_drafter_and_differ_from_each_other(pair):
    session = recorded(*pair)
    ids = session.pair.chat_tokens(MESSAGES[0])
    talk, _, _ = chat_with(session, **COUPLED)
    texts = [{fresh_tokens(pair, ids, replace(talk.request(attempt), k=k)) for k in (0, 1, 4)} for attempt in (0, 1)]
    assert [len(each) for each in texts] == [1, 1] and texts[0] != texts[1]
