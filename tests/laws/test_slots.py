"""Law: conversations that share weights do not share anything else. Two slots, round by round, each as if alone."""

from itertools import zip_longest

import pytest

from fakes.chat import BYTES, networks, tokenizer_in
from specdec_cli.core.events import RoundDone
from specdec_cli.core.request import Request
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

PROMPTS = [list(range(3, 60)), [(7 * i) % (BYTES - 3) + 3 for i in range(41)]]
KINDS = {"plain": "qwen3", "window": "gemma3_text", "recurrent": "qwen3_5", "recurrent and window": "recurrent_gemma"}


SLOW = ("window", "recurrent and window")
EACH = [pytest.param(KINDS[kind], marks=pytest.mark.slow if kind in SLOW else ()) for kind in KINDS]


@pytest.fixture(scope="module", params=EACH, ids=KINDS)
def pair(request, tmp_path_factory):
    target, draft = (CachedModel(network, request.param) for network in networks(request.param))
    tokenizer = tokenizer_in(tmp_path_factory.mktemp("tokenizer"))
    return LoadedPair(Pair("tiny", "t", "d"), ("t", "d"), tokenizer, Slot(target, draft))


def asked(prompt, k=3, seed=None):
    sampling = {"temperature": 0.8} if seed is not None else {}
    never_stop = tuple((token, -1e9) for token in (0, 1, 2))
    return prompt, Request(max_tokens=40, k=k, seed=seed, sampling=sampling, logit_bias=never_stop)


def said(events):
    return [token for event in events if isinstance(event, RoundDone) for token in event.round.emitted]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, pytest.param(7, marks=pytest.mark.slow)])
def test_two_slots_interleaved_round_by_round_equal_two_runs_alone(pair, seed):
    alone = [said(pair.session().reply(*asked(prompt, seed=seed))) for prompt in PROMPTS]
    assert alone[0] != alone[1]
    replies = [pair.session().reply(*asked(prompt, seed=seed)) for prompt in PROMPTS]
    events = [[], []]
    for both in zip_longest(*replies):
        for found, event in zip(events, both, strict=True):
            found += [] if event is None else [event]
    assert [said(found) for found in events] == alone
    rounds = [event.round for event in events[0] if isinstance(event, RoundDone)]
    assert any(round.accepted for round in rounds) and any(round.rejected is not None for round in rounds)
