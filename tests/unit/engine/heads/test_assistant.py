"""Gemma 4's assistants: what they propose is what mlx-vlm's drafter proposes, whatever happened before."""

import json
from copy import copy
from itertools import islice
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from fakes import gemma
from fakes.gemma import cached_assistant, gemma_target
from fakes.raw_gemma import VOCABULARY, WINDOW, assistant_tensors
from specdec_cli.engine.cache import shown as cache_shown
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.stepwise import HeadDrafter
from specdec_cli.engine.sampling.acceptance import greedy

RECORDED = json.loads((Path(gemma.__file__).parent / "recorded" / "mlx_vlm_assistant.json").read_text())
KINDS = tuple(RECORDED["cases"])


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """(its kind, a target, an assistant that drafts for it)."""
    folder = tmp_path_factory.mktemp("gemma")
    target = gemma_target(folder, request.param)
    return request.param, target, cached_assistant(folder, target, request.param)


def begun(target, head, context):
    """A drafter that has heard what the target read of `context`."""
    target, head = target.fresh(), head.fresh()
    drafter = HeadDrafter(head, target, greedy(target.vocab_size))
    for output in target.prefill(context):
        drafter.commit(context[: target.length + 1], output.hidden)
    return target, drafter


def proposals(kind, target, head):
    """Of each recorded round: (what is drafted, the round)."""
    context = [*RECORDED["prompt"], RECORDED["bonus"]]
    target, drafter = begun(target, head, context)
    for round in RECORDED["cases"][kind]:
        # As in a session: the next draft is begun before the target has forgotten what was rejected.
        draft = finished(drafter.propose(context, len(round["draft"]))).tokens
        target.commit(context, len(context) - 1)
        yield draft.tolist(), round
        output = target.outputs(context, mx.array(round["draft"], dtype=mx.int32))
        context += [*round["draft"][: round["accepted"]], round["next"]]
        drafter.commit(context, output.hidden[: round["accepted"] + 1])


def test_every_proposal_is_mlx_vlms(pair):
    """56 rounds of K 1 … 8 with every number of accepted tokens, to 200 positions past a window of 16."""
    rounds = list(proposals(*pair))
    assert [draft for draft, _ in rounds] == [round["draft"] for _, round in rounds]
    assert {(len(draft), round["accepted"]) for draft, round in rounds} >= {(8, 0), (8, 8), (1, 0), (1, 1), (5, 3)}
    assert min(round["lead"] for _, round in rounds) > 1e-3 and len({t for draft, _ in rounds for t in draft}) > 50


def test_one_position_before_is_another_proposal(pair):
    """A control: mlx-vlm's own loop stands there, and nearly every draft is another one."""
    rounds = RECORDED["cases"][pair[0]]
    assert sum(round["draft"] != round["earlier"] for round in rounds) > 0.8 * len(rounds)


@pytest.mark.parametrize("wrong", ["a window one wider", "the keys of the layer before the owner"])
def test_other_keys_are_other_proposals(pair, wrong, monkeypatch):
    """Controls: what is shown matters to what is proposed."""
    rows = cache_shown._rows

    def wider(part, first, end):
        part = copy(part)
        vars(part).update({name: WINDOW + 1 for name in vars(part) if name == "max_size"})
        return rows(part, first, end)

    if wrong == "a window one wider":
        monkeypatch.setattr(cache_shown, "_rows", wider)
    else:
        owned = pair[1].network.owners
        before = {name: owner - (name == "sliding_attention") for name, owner in owned.items()}
        monkeypatch.setattr(pair[1].network, "owners", before)
    others = (draft for draft, round in proposals(*pair) if draft != round["draft"])
    assert len(list(islice(others, 6))) == 6


def test_what_a_draft_sees_is_a_view_that_it_does_not_keep(pair):
    """The target's keys stay in one buffer: who held them while it writes would make it copy all of them."""
    context = [(5 * i) % 119 + 3 for i in range(40)]
    target, drafter = begun(*pair[1:], context)
    cache = target._caches.layers[target.network.owners["full_attention"]]

    def place():
        mx.eval(cache.state)
        return np.array(cache.keys, copy=False).ctypes.data

    where, held = place(), None
    for accepted in (2, 0, 3, 1, 2):
        assert place() == where
        draft = finished(drafter.propose(context, 3)).tokens
        held = target.shown(len(context) - 1) if len(context) > 48 else None  # the control: who holds them
        output = target.outputs(context, draft)
        context += [*draft.tolist()[:accepted], 7]
        drafter.commit(context, output.hidden[: accepted + 1])
        target.commit(context, len(context) - 1)
    assert held and place() != where


def test_of_a_prompt_no_state_waits_once_there_is_a_newer_one(pair):
    """The first draft computed those of the whole prompt in the layers that share caches: the prompt's time again."""
    _, target, head = pair
    target, head, context = target.fresh(), head.fresh(), [(5 * i) % 119 + 3 for i in range(40)]
    for output in target.prefill(context):
        head.hand_over(context[: target.length + 1], output.hidden)
    newest = target.outputs(context).hidden
    head.hand_over([*context, 7], newest)
    assert head.nbytes == newest.nbytes and head.follows([*context, 7])


def test_keys_in_a_few_bits_are_read_as_they_are_packed(tmp_path):
    """The target's quantized cache of full attention: most proposals stay those of the exact one."""
    target = gemma_target(tmp_path, "unified", kv_bits=8)
    head = cached_assistant(tmp_path, target, "unified")
    shown = begun(target, head, [3] * 20)[0].shown(19)
    assert shown.rows["full_attention"].bits == 8 and shown.rows["full_attention"].width == 32
    rounds = list(proposals("unified", target, head))
    same = sum(draft == round["draft"] for draft, round in rounds)
    assert len(rounds) / 2 < same < len(rounds)


@pytest.mark.parametrize("kind", KINDS)
def test_an_assistant_in_a_few_bits_guesses_nearly_as_the_exact_one(kind, tmp_path):
    """8 bits in groups of 32, embedding and clusters too."""
    stored = {}
    for name, value in assistant_tensors(kind).items():
        if value.ndim < 2 or value.shape[-1] % 32:
            stored[name] = value
            continue
        ends = ("weight", "scales", "biases")
        packed = (np.array(part) for part in mx.quantize(mx.array(value), group_size=32, bits=8))
        stored |= {name.removesuffix("weight") + end: part for end, part in zip(ends, packed, strict=True)}
    target = gemma_target(tmp_path, kind)
    head = cached_assistant(tmp_path, target, kind, tensors=stored)
    assert head.head.module.model.embed_tokens.bits == 8
    rounds = list(proposals(kind, target, head))
    assert sum(draft == round["draft"] for draft, round in rounds) > len(rounds) / 2


def test_a_head_of_clusters_gives_all_other_tokens_one_score(tmp_path):
    target = gemma_target(tmp_path, "e")
    head = cached_assistant(tmp_path, target, "e").head
    states = mx.random.normal((1, 3, 32), key=mx.random.key(3))
    scores = np.array(head.output_head.logits(states[0]))
    module = head.module
    for row, state in zip(scores, np.array(states[0]), strict=True):
        clusters = np.argsort(np.array(module.masked_embedding.centroids.weight) @ state)[-5:]
        order = np.array(module.masked_embedding.token_ordering).reshape(16, -1)
        chosen = order[clusters].ravel()
        exact = np.array(module.model.embed_tokens.weight)[chosen] @ state
        np.testing.assert_allclose(row[chosen], exact, atol=1e-4)
        others = np.setdiff1d(np.arange(VOCABULARY), chosen)
        np.testing.assert_allclose(row[others], exact.min() - 1, atol=1e-4)
