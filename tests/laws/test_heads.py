"""Law: a head keeps what its target keeps: it reads only what is new, and guesses as if it had read all anew."""

from itertools import islice

import pytest

from laws.pairs import OTHER, PROMPT, asked, pair_of, rounds_of, said
from specdec_cli.core.events import Prefill

QUICK = ("head", "assistant")


@pytest.fixture(
    scope="module",
    params=[*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("head of experts", "medusa"))],
)
def pair(request, tmp_path_factory):
    return pair_of(request.param, tmp_path_factory.mktemp("pair"))


def test_a_second_turn_reads_only_what_is_new(pair):
    session = pair.session()
    first = said(session.reply(PROMPT, asked(3)))
    events = list(session.reply([*PROMPT, *first, 9, 8], asked(3)))
    prefill = next(event for event in events if isinstance(event, Prefill))
    assert prefill.cached_tokens >= len(PROMPT) + len(first) - 2


def test_after_a_rejection_a_head_guesses_as_one_that_read_the_text_anew(pair):
    """With a rejected token's state its guesses are worse: the text stays right, and no figure says why it is slow."""
    context, compared, before = OTHER[:20], set(), None
    for round in rounds_of(pair.session().reply(context, asked(3, tokens=24))):
        if before and before.rejected is not None and len(round.draft) == 3 and before.accepted not in compared:
            compared.add(before.accepted)
            # A fresh session says the last token by itself, then drafts.
            _, anew = islice(rounds_of(pair.session().reply(context[:-1], asked(3, tokens=6))), 2)
            assert round.draft == anew.draft, before
        context, before = [*context, *round.emitted], round
    assert compared
