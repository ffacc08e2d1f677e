"""The memory of a chat is told in time, and never crossed, on a device with a small working set."""

from __future__ import annotations

import pytest

from fakes.chat import chat_with, ran, recorded
from specdec_cli.engine import device
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.session.capacity import capacity_of

TOKENS = 1500


@pytest.fixture
def small(pair, monkeypatch):
    """A chat on a device that holds the weights and the caches of TOKENS tokens."""
    session = recorded(*pair)
    capacity = capacity_of(session.pair)
    room = capacity.weight_bytes + capacity.cache_bytes(TOKENS)
    monkeypatch.setattr(device, "working_set_bytes", lambda: int(room / HEADROOM) + 2)
    return chat_with(session, max_tokens=8)


@pytest.mark.slow
def test_from_nine_tenths_on_a_chat_says_so_then_refuses_loses_nothing_and_goes_on_after_clear(small):
    """The bug: a chat looked at its memory for 4,096 tokens when it began, and crossed it in silence."""
    chat, _, err = small
    assert chat.context_limit == chat.request().max_context == TOKENS
    assert ran(small, "x" * 300)[0] == 0
    assert "memory" not in err.getvalue() + "".join(chat.toolbar)
    assert ran(small, *["x" * 300] * 3)[0] == 0
    assert err.getvalue().count("memory 9") == 1 and chat.toolbar[0].startswith("memory 9")
    assert "--kv-bits 8 shrinks the caches, --drafter none frees" in chat.toolbar[0]
    turns = chat.conversation.turns
    assert ran(small, "y" * 900)[0] == 5
    assert chat.conversation.turns == turns and chat.given[-1] == "y" * 900
    assert f"tokens > {TOKENS - 1} maximum: the memory of " in err.getvalue()
    assert "/clear starts anew; --kv-bits 8" in err.getvalue()
    assert ran(small, "/clear", "y" * 900)[0] == 0
    assert len(chat.conversation.turns) == 1


def test_a_pair_that_was_loaded_though_it_does_not_fit_is_not_refused_word_by_word(pair, monkeypatch):
    session = recorded(*pair)
    monkeypatch.setattr(device, "working_set_bytes", lambda: 1000)
    assert ran(chat_with(session, max_tokens=8), "hello")[0] == 0
