"""Law: what a caller predicts is a guess like any other. It changes the rounds and never a token of the answer."""

import pytest

from fakes.device import DrivenPair, FakeDevice
from fakes.machine import Machine
from fakes.serving import ids, tiny_loaded
from laws.pairs import rounds_of
from specdec_cli.core.events import RoundDone
from specdec_cli.core.kinds import PREDICTED
from specdec_cli.core.request import Constraint, Request

PROMPT = list(ids(50))
SAMPLED = {"seed": 11, "sampling": {"temperature": 0.9}}
# Small letters alone, so that the answer's text becomes the answer's ids again, and a capital is always wrong.
LETTERS = tuple((token, -1e9) for token in range(259) if not 67 <= token <= 92)
FEW = ((("ngram", 4), {}), (("auto", "auto"), SAMPLED))
EACH = [
    pytest.param(*who, more, marks=pytest.mark.slow if (who, more) in FEW else pytest.mark.full)
    for who in (("ngram", 4), ("ngram", "auto"), ("auto", 4), ("auto", "auto"))
    for more in ({}, SAMPLED)
]


@pytest.fixture(scope="module", params=["plain", pytest.param("recurrent", marks=pytest.mark.slow)])
def pair(request, tmp_path_factory):
    return tiny_loaded(tmp_path_factory.mktemp("pair"), request.param)


def reply(session, predict="", drafter="ngram", k=4, **more):
    """(rounds, finish)."""
    request = Request(predict=predict, drafter=drafter, k=k, **{"max_tokens": 60, "logit_bias": LETTERS, **more})
    *events, finish = session.reply(PROMPT, request)
    return rounds_of(events), finish


@pytest.mark.parametrize(("drafter", "k", "more"), EACH)
def test_right_wrong_or_empty_the_answer_is_the_same(pair, drafter, k, more):
    _, plain = reply(pair.session(), k=0, **more)
    half = len(plain.text) // 2
    texts = {
        "right": plain.text,
        "half right": plain.text[:half] + "Q" * 30,
        "edited in the middle": plain.text[: half - 5] + "QQQQQ" + plain.text[half:],
        "wrong": "ZzZyZx" * 20,
        "longer": plain.text + "and so on",
        "empty": "",
    }
    for name, text in texts.items():
        assert reply(pair.session(), text, drafter, k, **more)[1].tokens == plain.tokens, name


@pytest.mark.parametrize("more", [{}, SAMPLED], ids=["greedy", "coupled"])
def test_a_right_prediction_is_accepted_from_the_second_round_on_and_counted_apart(pair, more):
    _, plain = reply(pair.session(), k=0, **more)
    rounds, finish = reply(pair.session(), plain.text, **more)
    assert [round.drafter for round in rounds[1:]] == [PREDICTED.name] * (len(rounds) - 1)
    assert all(round.accepted == len(round.draft) for round in rounds)
    assert len(rounds) == 13  # the first token, and 59 by fives
    assert finish.stats["drafted_by"] == finish.stats["accepted_by"] == {PREDICTED.name: 47}


def test_ids_that_the_model_has_no_token_for_are_never_drafted(pair):
    _, plain = reply(pair.session(), k=0)
    rounds, finish = reply(pair.session(), (*plain.tokens[:9], 10**6, *plain.tokens[9:]))
    assert finish.tokens == plain.tokens and finish.stats["accepted_by"][PREDICTED.name] > 40
    assert max(token for round in rounds for token in round.draft) < 10**6


# Each further row costs most of a pass, as on a small CPU, and a draft step as much as a plain one.
DEAR = DrivenPair(Machine("dear rows", 1.0, {2: 1.8, 32: 25.8}), 1.0, "a chip that nobody knows", flat=32)


# Further rows are nearly free: whatever is found is drafted.
CHEAP = DrivenPair(Machine("cheap rows", 1.0, {2: 1.01, 32: 1.2}), 1.0, DEAR.chip, flat=32)


@pytest.fixture
def dear(tmp_path, monkeypatch):
    return conversation_on(DEAR, tmp_path, monkeypatch)


@pytest.fixture
def cheap(tmp_path, monkeypatch):
    return conversation_on(CHEAP, tmp_path, monkeypatch)


def conversation_on(machine, folder, monkeypatch):
    fake = FakeDevice().install_as(machine.chip, monkeypatch)
    session = tiny_loaded(folder).session(clock=fake.clock)
    machine.drive(fake, session)
    return session


def said(session, predict="", drafter="auto", k="auto", tokens=60):
    return reply(session, predict, drafter, k, max_tokens=tokens)


def shuffled(text):
    """It is found again after every three letters, and is wrong each time."""
    return "".join(text[at : at + 3] + "Q" for at in range(0, len(text), 3))


@pytest.mark.parametrize(
    ("before", "drafter"),
    [
        ("nothing", "auto"),
        pytest.param("a draft that loses", "ngram", marks=pytest.mark.slow),
        pytest.param("wrong predictions", "auto", marks=pytest.mark.full),
    ],
)
def test_under_auto_a_right_prediction_drafts_from_the_start_whatever_was_learned(dear, drafter, before):
    """The bug: 12 of 12 exact predictions were never tried, where rows are dear and drafts had lost."""
    _, plain = said(dear, k=0, tokens=200)
    for _ in range(0 if before == "nothing" else 3):
        said(dear, shuffled(plain.text) if before == "wrong predictions" else "", drafter, tokens=200)
    rounds, finish = said(dear, plain.text, drafter)
    assert finish.tokens == plain.tokens[:60]
    assert PREDICTED.name in [round.drafter for round in rounds[:3]]
    assert finish.stats["accepted_by"][PREDICTED.name] >= 40
    assert finish.stats["decode_seconds"] < 0.3 * plain.stats["decode_seconds"]


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["cheap", "dear"])
def test_under_auto_a_prediction_drafts_in_the_first_round_where_rows_are_known_to_be_cheap(machine, request):
    session = request.getfixturevalue(machine)
    _, plain = said(session, k=0)
    firsts = []
    for _ in range(3):
        rounds, finish = said(session, plain.text)
        assert finish.tokens == plain.tokens
        assert finish.stats["timed_tokens"] == 60 - len(rounds[0].emitted)
        assert finish.stats["tokens_per_second"] == pytest.approx(
            finish.stats["timed_tokens"] / finish.stats["decode_seconds"]
        )
        firsts.append(len(rounds[0].emitted))
        said(session, tokens=200)  # plain steps are measured
    assert firsts[0] == 1  # nothing is known yet
    assert firsts[-1] == (3 if machine == "cheap" else 1)


# Nothing but the letter a can be said, so whatever is looked up, predicted or forced is right, however long it is.
ONLY_A = tuple((token, -1e9) for token in range(259) if token != 67)
LONGER = {
    "predicted": {"predict": "a" * 200},
    "looked up": {"prompt": [67] * 60},
    "forced": {"constraint": Constraint("regex", "a{200}")},
}


@pytest.mark.parametrize("source", LONGER)
@pytest.mark.parametrize(("drafter", "k"), [("ngram", 4), ("ngram", "auto"), ("auto", 4), ("auto", "auto")])
def test_a_guess_that_is_longer_than_the_answer_may_be_adds_no_token(cheap, source, drafter, k):
    """A guess that ignored what is left was emitted beyond max_tokens, and then the loop had no end."""
    more = dict(LONGER[source])
    prompt, guesses = more.pop("prompt", PROMPT), []
    for tokens in (5, 10, 33, 33):
        request = Request(drafter=drafter, k=k, max_tokens=tokens, logit_bias=ONLY_A, **more)
        said = []
        for event in cheap.reply(prompt, request):
            if isinstance(event, RoundDone):
                said += event.round.emitted
                guesses += event.round.draft
                assert len(said) <= tokens
        assert (event.tokens, tuple(said), event.reason) == ((67,) * tokens, (67,) * tokens, "length")
    assert len(guesses) > 20
