"""Fifty turns: what a turn costs on the host, in memory and in tokens read does not grow with their number."""

from __future__ import annotations

import gc

import mlx.core as mx
import pytest

from fakes.chat import chat_with
from fakes.drafting import open_session
from specdec_cli.chat.chat import Loaded
from specdec_cli.engine.cache.rollback import leaves
from specdec_cli.events import RoundDone
from specdec_cli.pairs.catalog import registry
from specdec_cli.request import Request
from specdec_cli.session.load import load


def demo_talk(**settings):
    pair = registry().find("demo")
    talk, out, err = chat_with(open_session(pair), **settings)
    talk.loaded = Loaded(pair, talk.loaded.session, "model")
    return talk, out, err


def cache_bytes(session):
    """Bytes of the caches of both models, as far as they are allocated."""
    parts = [part for model in (session.slot.target, session.slot.draft) for part in leaves(model._caches.layers)]
    return sum(part.nbytes for part in parts)


def soak(talk, turns):
    """(bytes besides the caches, cache bytes, tokens read, prompt tokens) after each turn."""
    found = []
    for number in range(turns):
        before = talk.stats.prompt_tokens, talk.stats.cached_tokens
        talk.ask(f"def step_{number}(value):")
        prompt = talk.stats.prompt_tokens - before[0]
        read = prompt - (talk.stats.cached_tokens - before[1])
        gc.collect()
        mx.clear_cache()
        caches = cache_bytes(talk.loaded.session)
        found.append((mx.get_active_memory() - caches, caches, read, prompt))
    return found


def check(found, limit):
    rest = [other for other, *_ in found[len(found) // 4 :]]
    early, late = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    # Weights, a few snapshots, a tape: their sizes vary with the prompts, and no turn adds to them.
    assert max(late) <= 1.02 * max(early), rest
    assert all(prompt < limit for *_, prompt in found)
    read = [tokens for _, _, tokens, _ in found]
    # Only a turn that leaves old ones out reads the rest anew; each makes room for several.
    assert sum(tokens > 60 for tokens in read) <= len(found) / 4, read


@pytest.mark.slow
def test_memory_and_tokens_read_stay_flat_over_turns():
    talk, _, _ = demo_talk(max_tokens=8, max_context=256, overflow="drop-oldest")
    check(soak(talk, 16), 256)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("turns", [pytest.param(12, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.full)])
def test_turns_of_the_demo_hybrid_stay_flat_and_say_what_plain_decoding_says(turns):
    """Through a trained head and a recurrent target: after no round does the head's cache hold more than the target's.

    The oldest turns fall out of the prompt from about the tenth on, so that caches are cut and read anew. Of the last
    40 of 50 turns the later half holds at most 2 % more beside the caches than the first.
    """
    pair = load(registry().find("demo-hybrid"), drafter="mtp")
    sessions = {"mtp": pair.session(), "plain": pair.session()}
    never_stop = tuple((token, -1e9) for token in (0, 1, 2))
    context, held, drafted = [], [], 0
    for turn in range(turns):
        context = (context + pair.text_tokens(f"\n\ndef step_{turn}(value):\n"))[-200:]
        said = {}
        for name, k in (("mtp", 1 + turn % 4), ("plain", 0)):
            session, said[name] = sessions[name], []
            slot = session.slot
            asked = Request(max_tokens=12, k=k, drafter="model" if k else "none", logit_bias=never_stop)
            for event in session.reply(context, asked, raw=True):
                if isinstance(event, RoundDone):
                    said[name] += event.round.emitted
                    drafted += len(event.round.draft)
                    assert slot.head.length <= slot.target.length and slot.head.cached <= slot.target.length
        assert said["mtp"] == said["plain"], turn
        context = context + said["mtp"]
        gc.collect()
        mx.clear_cache()
        parts = [part for session in sessions.values() for part in leaves(session.slot.target._caches.layers)]
        caches = sum(part.nbytes for part in parts) + sum(session.slot.head.nbytes for session in sessions.values())
        held.append(mx.get_active_memory() - caches)
    assert drafted > 5 * turns
    assert turns < 50 or max(held[30:]) <= 1.02 * max(held[10:30]), held
