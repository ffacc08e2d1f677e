"""A draft of another vocabulary, against its own continuation without a cache, token by token."""

import time

import mlx.core as mx
import numpy as np
import pytest

from fakes.drafting import MORE, drafters_of, translated
from fakes.models import TINY, tiny_network
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.stepwise import TranslatedDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.models.translation import TranslatedText
from specdec_cli.session.slot import Slot

NETWORK, OTHER = tiny_network(seed=1), tiny_network(seed=1, noise=0.05)
V = TINY["vocab_size"]
MUTE = range(5, V, 9)
PROMPT = [*range(3, 23)] * 2


def made(rule=None, **how):
    draft = translated(OTHER, MUTE, **how)
    return draft, TranslatedDrafter(draft, V, rule or greedy(V))


def continued(draft, context, k):
    """Greedily, by whole passes over its own ids: k ids of the target's."""
    said, own = draft.tables.said, list(TranslatedText(draft.translation, context).ids)
    back = {other: one for one, other in said.items()}
    ids = []
    for _ in range(k):
        logits = np.array(draft.network.module(mx.array([own]))[0, -1])
        own.append(max(back, key=lambda other: logits[other]))
        ids.append(back[own[-1]])
    return ids


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_draft_is_how_the_model_continues_the_text_in_its_own_ids(k):
    draft, drafter = made()
    proposed = finished(drafter.propose(PROMPT, k))
    assert (proposed.tokens.tolist(), proposed.drafter) == (continued(draft, PROMPT, k), "translated")


def test_its_law_lies_on_what_it_can_say_and_is_one():
    rule = make_rule("token", Sampler(Sampling(1.0), 3, PROMPT, V))
    draft, drafter = made(rule)
    q = np.exp(np.array(finished(drafter.propose(PROMPT, 4)).log_q))
    assert set(np.nonzero(q.sum(0))[0]) == set(draft.tables.said) == set(range(V)) - set(MUTE)
    np.testing.assert_allclose(q.sum(-1), 1, rtol=1e-5)


def test_a_context_of_many_more_ids_is_told_in_the_targets_tokens():
    """The place it reads from, then that after each chunk; and what is unread of a context that goes on."""
    context = [token for token in MUTE for _ in range(3)]
    draft, drafter = made()
    *reading, _, _ = drafter.propose(context, 1)
    assert reading == [0, len(context) - 1]
    assert draft.length == 1 + 2 * len(context)  # what begins a text, and two ids a token
    assert draft.unread(context) == 1 and draft.unread([*context, 3, 5, 7]) == 4
    assert translated(OTHER, MUTE).unread(context) == len(context)


@pytest.mark.parametrize("accepted", [0, 2, 4])
@pytest.mark.parametrize("last", [4, MUTE[3]])
def test_after_a_round_the_caches_hold_the_text_and_nothing_else(accepted, last):
    """`last` is the target's own token: one id, or two; the next draft is that of a model that read all anew."""
    draft, drafter = made()
    context = list(PROMPT)
    context += finished(drafter.propose(context, 4)).tokens.tolist()[:accepted]
    context.append(last)
    drafter.commit(context)
    assert list(draft.read) == TranslatedText(draft.translation, context).ids[: len(draft.read)]
    assert len(draft.read) >= 1 + len(PROMPT) + min(accepted, 3)
    assert finished(drafter.propose(context, 3)).tokens.tolist() == continued(draft, context, 3)


def test_what_it_drafted_without_a_word_for_it_is_read_again_as_it_is_spelled():
    draft, drafter = made()
    context = list(PROMPT)
    finished(drafter.propose(context, 4))
    context += [MUTE[3], 4, 6]  # as if all had been accepted
    drafter.commit(context)
    assert list(draft.read) == TranslatedText(draft.translation, PROMPT).ids
    assert finished(drafter.propose(context, 3)).tokens.tolist() == continued(draft, context, 3)


class Only:
    """A constraint that allows some tokens, always."""

    def __init__(self, tokens):
        words = np.zeros((V + 31) // 32 * 32, np.uint8)
        words[list(tokens)] = 1
        self._row = np.packbits(words, bitorder="little").view(np.int32)

    def masks(self, draft):
        return np.tile(self._row, (len(draft) + 1, 1))

    def forced(self):
        return []

    def legal(self, draft):
        return len(draft)

    def advance(self, emitted):
        pass


@pytest.mark.parametrize("rule", ["token", "block", "coupled", "match", "greedy"])
@pytest.mark.parametrize("allowed", [MUTE, [*MUTE, 4, 6]])
def test_a_constraint_that_it_can_say_nothing_of_changes_no_answer(rule, allowed):
    """A row without any odds was no distribution: every draft of it was NaN, and the reply an error."""

    def rounds(drafter, k):
        temperature = 0.0 if rule == "greedy" else 1.0
        sampler = Sampler(Sampling(temperature), 5, PROMPT, V, Only(allowed))
        made = make_rule(rule if drafter != "none" or rule == "greedy" else "coupled", sampler)
        target, context = CachedModel(NETWORK, "target"), list(PROMPT)
        drafters = drafters_of(drafter, target, translated(OTHER, MUTE), made, k, Only(allowed))
        found = list(decode(target, drafters, made, context, 24, frozenset(), time.perf_counter))
        return context[len(PROMPT) :], found

    said, found = rounds("translated", 3)
    assert set(said) <= set(allowed) and any(round.draft for round in found)
    if rule in ("coupled", "match", "greedy"):
        assert said == rounds("none", 0)[0]


def test_marks_and_copies_of_a_slot_are_counted_in_its_own_ids():
    context = [token for token in MUTE for _ in range(2)]
    slot = Slot(CachedModel(NETWORK, "t"), translated(OTHER, MUTE))
    slot.target.catch_up(context)
    own = TranslatedText(slot.draft.translation, context).ids
    slot.draft.catch_up(own)
    twin = slot.copy(10)
    assert (twin.target.length, list(twin.draft.read)) == (10, own[: 1 + 2 * 10])
    assert twin.draft.kind == "translated" and slot.draft.own_ends(context, [0, 3, 999]) == [0, 7, len(own)]


def test_ids_without_a_row_are_not_said():
    draft = translated(OTHER)
    narrow = type(draft).of(CachedModel(OTHER, "d"), draft.translation, V)  # the draft's last rows are gone
    assert len(draft.tables.said) - len(narrow.tables.said) <= MORE
    assert max(narrow.tables.said.values()) < V
