"""Law: whoever drafts, however much, under whatever rule and on whatever surface, the words are plain decoding's.

One table. Its rows are kinds of pairs (`laws.pairs`); along a row the surfaces, settings and K take turns, so that each
kind meets each of them, and each surface each setting. The other side is mlx-lm's own decoding, in float32.
What a drafter or a rule must do is read from the registries: a new one is tried by its line in `core/kinds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest

import mlx.core as mx
import pytest

from fakes.chat import Recorded, chat_with
from fakes.counting import counting_folder, counting_tensors
from fakes.device import says
from fakes.serving import Client, desk_of
from laws.pairs import ASSISTANTS, HEADS, KINDS, MUTE, OTHER, PROMPT, asked, pair_of, plain, rounds_of, said
from specdec_cli.apps.race.events import DRAFTED, PLAIN, LaneStep
from specdec_cli.apps.race.race import RacePlan, race
from specdec_cli.apps.serve.job import Job
from specdec_cli.core import kinds
from specdec_cli.core.events import RoundDone
from specdec_cli.core.request import Constraint
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.sampling.acceptance import Coupled
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.registry import packaged_file, read_registry
from specdec_cli.session.load import load

TOKENS = 24


# Pairs


@pytest.fixture(scope="module")
def pair(request, tmp_path_factory):
    """One that was made, or loaded from its folders as the product does it, whose head was checked."""
    folder = tmp_path_factory.mktemp("pair")
    if request.param == "demo-hybrid":
        return load(read_registry(packaged_file(), "packaged").find("demo-hybrid"), drafter="mtp")
    if request.param == "from folders":
        made = counting_folder(folder / "m", counting_tensors(head_noise=1.3))
        return load(Pair("counting", str(made), None), drafter="mtp")
    return pair_of(request.param, folder)


# Surfaces: each yields (prompt, request, what was said).


def run(pair, request):
    """A reply of a session."""
    yield PROMPT, request, said(pair.session().reply(PROMPT, request))


def queued_ahead(pair, request):
    """The same on a device that gets the next round before the last one is read, as a GPU does."""
    with pytest.MonkeyPatch.context() as patch:
        says(patch, queues_ahead=True)
        yield from run(pair, request)


def beside_others(pair, request):
    """Round by round with another conversation, in a slot that was left amid an answer, and in a copy of that.

    A shape, several answers to one prompt, and an abort amid one crashed another engine: vLLM #11484.
    """
    left = pair.session()
    for _ in zip(range(9), left.reply(PROMPT, request), strict=False):
        pass
    sessions = left, pair.session(left.slot.copy(30)), pair.session()
    prompts = PROMPT, PROMPT, OTHER
    replies = [session.reply(prompt, request) for session, prompt in zip(sessions, prompts, strict=True)]
    events = [[], [], []]
    for each in zip_longest(*replies):
        for found, event in zip(events, each, strict=True):
            found += [] if event is None else [event]
    yield from ((prompt, request, said(found)) for prompt, found in zip(prompts, events, strict=True))


def chat(pair, request):
    """Turns of a chat, each with the one before in its prompt."""
    session = Recorded(pair, pair.slot())
    fields = ("k", "seed", "sampling", "drafter", "logit_bias", "constraint", "max_tokens")
    talk, _, _ = chat_with(session, **{name: getattr(request, name) for name in fields})
    for message in ("hello there", "and then?"):
        talk.ask(message)
    assert len(session.replies) == 2
    for prompt, asked_for, _, finish in session.replies:
        yield prompt, asked_for, list(finish.tokens)


def served(pair, request):
    """Two clients of one server, which share their passes where they can."""
    said(pair.session().reply(PROMPT, asked(1, tokens=4)))  # what a network makes lazily is of the thread that made it
    desk = desk_of(pair, parallel=4)
    try:
        clients = [(prompt, Client(desk, Job(tuple(prompt), request, (), None, "law"))) for prompt in (PROMPT, OTHER)]
        yield from ((prompt, request, list(client.wait().tokens)) for prompt, client in clients)
    finally:
        desk.close()


def raced(pair, request):
    """Both lanes of a race."""
    steps = [step for step in race(pair, RacePlan(request, PROMPT, "", turn_seconds=0.0)) if isinstance(step, LaneStep)]
    for lane in (PLAIN, DRAFTED):
        yield PROMPT, request, said(step.event for step in steps if step.lane == lane)


SHAPE = Constraint("regex", "[a-p]{3,9}(x|yz){2,4}")
PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3}
SETTINGS = {
    "greedy": {},
    "coupled": {"seed": 11},
    "penalised": {"seed": 5, "sampling": {"temperature": 0.8, **PENALTIES}},
    "shaped": {"constraint": SHAPE},
    "shaped and coupled": {"constraint": SHAPE, "seed": 3},
}
SURFACES = {each.__name__: each for each in (run, queued_ahead, beside_others, chat, served, raced)}
KS = (4, 1, "auto", 8)
# The pair's draft, and now and then the better of it and the text.
DRAFTERS, WITHOUT_DRAFT = ("model", "model", "auto"), ("ngram", "auto")
EVERY = (*KINDS, "from folders", "demo-hybrid")
# What is quickly made has a cell in the default tier.
QUICK = ("plain", "recurrent", "translated", "alone", "head", "assistant")


def cells():
    """Of each kind as many cells as there are surfaces."""
    for row, kind in enumerate(EVERY):
        for turn, surface in enumerate(SURFACES):
            if surface == "chat" and kind in (*HEADS, *ASSISTANTS):
                continue  # their targets know fewer tokens than there are bytes
            setting = [*SETTINGS][(row + turn) % len(SETTINGS)]
            drafters = WITHOUT_DRAFT if kind == "alone" else DRAFTERS
            k, drafter = KS[(row + turn) % len(KS)], drafters[(row + turn) % len(drafters)]
            quick = kind in QUICK and surface == [*SURFACES][QUICK.index(kind) % len(SURFACES)]
            name = f"{kind}-{surface}-{setting}-{drafter}-{k}"
            yield pytest.param(kind, surface, setting, drafter, k, marks=() if quick else pytest.mark.slow, id=name)


@pytest.mark.parametrize(("pair", "surface", "setting", "drafter", "k"), list(cells()), indirect=["pair"])
def test_the_words_are_plain_decodings(pair, surface, setting, drafter, k):
    request = asked(k, drafter=drafter, tokens=TOKENS, **SETTINGS[setting])
    for prompt, asked_for, tokens in SURFACES[surface](pair, request):
        # The token that ends an answer is told by some surfaces and not by others.
        words, expected = (
            [token for token in ids if token not in pair.tokenizer.stop_tokens]
            for ids in (tokens, plain(pair, prompt, asked_for))
        )
        assert words == expected and len(words) > 3


@pytest.mark.parametrize(
    "pair", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in EVERY], indirect=True
)
@pytest.mark.parametrize("seed", [None, pytest.param(7, marks=pytest.mark.slow)])
def test_of_what_is_drafted_some_is_accepted_and_some_rejected(pair, seed):
    """Guards the table: what nobody drafts, or nothing takes back, would pass it."""
    tokens, drafter = (60, "model") if pair.draft_kind else (400, "ngram")  # a text of noise seldom repeats itself
    rounds = rounds_of(pair.session().reply(PROMPT, asked(3, seed, tokens, drafter)))
    drafted = [round for round in rounds if round.draft]
    assert {round.drafter for round in drafted} == {pair.draft_kind or "ngram"}
    assert any(round.accepted for round in drafted) and any(round.rejected is not None for round in drafted)


# What the registries name, toys among them: a drafter is one class and one line, and so is a rule.


class ToyDrafter(Drafter):
    """Says the last token again, but the answer's true beginning first, so that something is accepted."""

    name = "toy"
    answer: Sequence[int] = ()

    def __init__(self, parts):
        pass

    def propose(self, context, k):
        yield from ()
        at = len(context) - len(PROMPT)
        guess = [*self.answer[at : at + k // 2], *[context[-1]] * k][:k]
        return Draft(mx.array(guess, dtype=mx.int32), drafter=self.name)


class ToyRule(Coupled):
    """Coupled under another name."""

    name = "toy"


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The one line each."""
    monkeypatch.setitem(kinds.DRAFTERS, "toy", kinds.DrafterKind("toy", f"{__name__}:ToyDrafter", learns=True))
    monkeypatch.setitem(kinds.RULES, "toy", kinds.RuleKind("toy", f"{__name__}:ToyRule", same_noise=True))


PAIR_OF = {"translated": "translated", "mtp": "head", "medusa": "medusa", "gemma4_assistant": "assistant"}


@pytest.fixture(scope="module")
def pair_for(tmp_path_factory):
    """By the name of a drafter a pair whose draft is of that kind, each made once."""
    folder = tmp_path_factory.mktemp("kinds")
    made = cache(lambda kind: pair_of(kind, folder))
    ToyDrafter.answer = plain(made("plain"), PROMPT, asked(0, tokens=TOKENS))
    return lambda drafter: made(PAIR_OF.get(drafter, "plain"))


SHOWN = {("model", "block"), ("model", "coupled"), ("translated", "block"), ("ngram", "token"), ("mtp", "greedy")}
SHOWN |= {("toy", "toy"), ("toy", "greedy"), ("auto", "greedy")}


@pytest.mark.parametrize(
    ("drafter", "rule"),
    [
        pytest.param(drafter, rule, marks=() if (drafter, rule) in SHOWN else pytest.mark.slow)
        for drafter in (*kinds.DRAFTERS, "toy")
        for rule in ("greedy", *kinds.RULES, "toy")
    ],
)
def test_every_drafter_works_under_every_rule(pair_for, drafter, rule):
    """Where a rule takes the target's own draws, at every K; what the others draw is as long."""
    pair, how = pair_for(drafter), {} if rule == "greedy" else {"seed": 5, "rule": rule}
    same = rule in ("greedy", "match") or kinds.RULES[rule].same_noise
    for k in (1, 4, "auto") if same else (3,):
        request = asked(k, drafter=drafter, tokens=TOKENS, **how)
        found = said(pair.session().reply(PROMPT, request))
        assert found == plain(pair, PROMPT, request) if same else len(found) == TOKENS


def test_the_toys_are_taken_by_name_and_judged(pair_for):
    """Guards the contract: a drafter that nothing asks would pass it."""
    request = asked(4, drafter="toy", tokens=TOKENS)
    start, *events = pair_for("toy").session().reply(PROMPT, request)
    drafted = [round for round in rounds_of(events) if round.draft]
    assert start.drafter == "toy" and {round.drafter for round in drafted} == {"toy"}
    assert any(round.accepted for round in drafted) and any(round.rejected is not None for round in drafted)
    start, *_ = pair_for("toy").session().reply(PROMPT, asked(4, 1, drafter="toy", rule="toy"))
    assert start.rule == "toy"


# Words that a draft cannot say, and replies that are left.


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("drafter", ["model", "translated"])
@pytest.mark.parametrize("emitted", range(1, 12, 2))
def test_a_reply_that_is_left_between_rounds_leaves_caches_of_what_was_said(
    pair_for, device_says, drafter, emitted, ahead
):
    """Also where a round is queued before the last one is read or handed on, as on a GPU."""
    device_says(queues_ahead=ahead)
    pair = pair_for(drafter)
    session, context = pair.session(), list(PROMPT)
    events = session.reply(PROMPT, asked(3))
    for event in events:
        if isinstance(event, RoundDone):
            context += event.round.emitted
            if len(context) - len(PROMPT) >= emitted:
                break
    events.close()
    further = [*context, 7, MUTE[4], 8]
    assert said(session.reply(further, asked(3))) == plain(pair, further, asked(3))
