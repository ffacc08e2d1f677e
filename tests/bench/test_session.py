"""A conversation taken apart: the baseline is mlx-lm's own, and what is timed is the product's own loop."""

import pytest

from fakes.drafting import open_session
from specdec_cli.bench.session import TURNS, offline_acceptance, plain_tokens, round_costs
from specdec_cli.bench.sweep import Cancelled
from specdec_cli.events import RoundDone
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request

PROMPT = [*range(5, 25)] * 2


@pytest.fixture(scope="module")
def session(tiny_pair):
    return open_session(Pair("tiny", *map(str, tiny_pair)))


def said(session, request):
    events = session.reply(PROMPT, request)
    return [token for event in events if isinstance(event, RoundDone) for token in event.round.emitted]


@pytest.mark.parametrize("sampling", [{}, {"repetition_penalty": 1.3}, {"temperature": 0.7}])
def test_the_baselines_tokens_are_those_of_the_product_without_a_draft(session, sampling):
    request = Request(max_tokens=16, k=0, seed=3, sampling=sampling)
    assert list(plain_tokens(session, PROMPT, request)) == said(session, request)


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_acceptance_without_running_has_an_entry_for_each_token_of_the_answer(session, drafter):
    request = Request(max_tokens=24, k=4, drafter=drafter)
    answer = list(plain_tokens(session, PROMPT, request))
    session.slot.forget()
    drafted, accepted = offline_acceptance(session, PROMPT, answer, request, 4)
    assert len(drafted) == len(accepted) == len(answer)
    assert all(0 <= a <= d <= 4 for d, a in zip(drafted, accepted, strict=True))


def test_every_k_is_timed_as_often_as_there_are_turns(session):
    found = round_costs(session, PROMPT, Request(k=3, drafter="model"), [1, 3], lambda: False)
    assert sorted(cost.k for cost in found) == [1] * TURNS + [3] * TURNS


def test_ctrl_c_while_the_prompt_is_read_ends_the_timing(session):
    with pytest.raises(Cancelled):
        round_costs(session, PROMPT * 3, Request(k=3, drafter="model"), [1], lambda: True)
