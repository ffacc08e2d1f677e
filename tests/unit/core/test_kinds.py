"""A drafter is one class and one line, a rule one class and one line: shown by adding both, and by the contract."""

import time

import mlx.core as mx
import pytest

from fakes.drafting import draft_for, drafters_of, open_session
from fakes.models import tiny_network
from specdec_cli.core import kinds
from specdec_cli.core.events import Finish, RoundDone, Start
from specdec_cli.core.request import Request
from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import Coupled, greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.drafting import DraftController

NETWORK, OTHER = tiny_network(seed=1), tiny_network(seed=1, noise=0.05)
PROMPT = [*range(3, 23)] * 2
GREEDY = [t for r in baseline(NETWORK, PROMPT, 24, frozenset(), time.perf_counter) for t in r.emitted]


class ToyDrafter(Drafter):
    """Says the last token again, but the reply's true beginning first, so that something is accepted."""

    name = "toy"

    def __init__(self, parts):
        self._parts = parts

    def propose(self, context, k):
        yield from ()
        said = len(context) - len(PROMPT)
        guess = [*GREEDY[said : said + k // 2], *[context[-1]] * k][:k]
        return Draft(mx.array(guess, dtype=mx.int32), drafter=self.name)


class ToyRule(Coupled):
    """Coupled under another name."""

    name = "toy"


TOY_DRAFTER = kinds.DrafterKind("toy", f"{__name__}:ToyDrafter", learns=True)
TOY_RULE = kinds.RuleKind("toy", f"{__name__}:ToyRule", same_noise=True)


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The one line each."""
    monkeypatch.setitem(kinds.DRAFTERS, "toy", TOY_DRAFTER)
    monkeypatch.setitem(kinds.RULES, "toy", TOY_RULE)


def decoded(name, k, rule=None, seed=None):
    target, draft = CachedModel(NETWORK, "target"), CachedModel(OTHER, "draft")
    rule = rule or greedy(target.vocab_size)
    context = list(PROMPT)
    if k == "auto":
        controller = DraftController(target, draft_for(name, target, draft))
        drafters = controller.begin(kinds.kind_of(name), k, rule, context, len(GREEDY))
    else:
        drafters = drafters_of(name, target, draft, rule, k)
    rounds = list(decode(target, drafters, rule, context, len(GREEDY), frozenset(), time.perf_counter))
    return context[len(PROMPT) :], rounds


KINDS = [*kinds.DRAFTERS, "toy"]


def corners(values, shown):
    """The product of all kinds and these values; but for `shown` in the tier `slow`."""
    product = [(name, value) for name in KINDS for value in values]
    return [pytest.param(*both, marks=[] if both in shown else [pytest.mark.slow]) for both in product]


@pytest.mark.parametrize(
    ("name", "k"),
    corners(
        [1, 4, "auto"],
        {("model", 4), ("model", "auto"), ("translated", 4), ("ngram", 4), ("auto", "auto"), ("mtp", 4), ("toy", 1)},
    ),
)
def test_every_kind_of_drafter_is_lossless(name, k):
    assert decoded(name, k)[0] == GREEDY


@pytest.mark.parametrize(
    ("name", "rule"),
    corners(
        [*kinds.RULES, "toy"],
        {("model", "block"), ("model", "coupled"), ("translated", "block"), ("ngram", "token"), ("toy", "toy")},
    ),
)
def test_every_drafter_works_under_every_rule(name, rule):
    """Rules that take the target's own draws say what plain decoding says under `coupled`; the others say something."""

    def text(drafter, k, rule):
        made = make_rule(rule, Sampler(Sampling(0.8), 5, PROMPT, CachedModel(NETWORK, "t").vocab_size))
        return decoded(drafter, k, made)[0]

    found = text(name, 3, rule)
    assert len(found) == len(GREEDY)
    if kinds.RULES[rule].same_noise or rule == "match":
        assert found == text("none", 0, "coupled")


def test_the_toy_drafts_and_is_judged():
    """Guards the contract: a drafter that nothing asks would pass it."""
    _, rounds = decoded("toy", 4)
    drafted = [round for round in rounds if round.draft]
    assert {round.drafter for round in drafted} == {"toy"}
    assert any(round.accepted for round in drafted) and any(round.rejected is not None for round in drafted)


def test_a_session_takes_the_toys_by_name(tiny_pair):
    session = open_session(Pair("tiny", *map(str, tiny_pair)))
    request = Request(max_tokens=12, k=3, drafter="toy", rule="toy", seed=1, sampling={"temperature": 0.8})
    events = list(session.reply(PROMPT, request))
    start = events[0]
    assert isinstance(start, Start) and (start.drafter, start.rule) == ("toy", "toy")
    assert {event.round.drafter for event in events if isinstance(event, RoundDone) and event.round.draft} == {"toy"}
    assert isinstance(events[-1], Finish)


@pytest.mark.parametrize(
    ("name", "k", "has_draft", "expected"),
    [
        ("model", 4, True, "model"),
        ("model", 4, False, "none"),
        ("model", 0, True, "none"),
        ("auto", "auto", True, "auto"),
        ("auto", "auto", False, "ngram"),
        ("ngram", 4, False, "ngram"),
        ("none", "auto", True, "none"),
        ("mtp", 4, False, "none"),
    ],
)
def test_who_really_drafts(name, k, has_draft, expected):
    meant = kinds.drafting(name, k, "model" if has_draft else None)
    assert (meant.kind.name, meant.k) == (expected, 0 if expected == "none" else k)


@pytest.mark.parametrize(
    ("name", "k", "expected"),
    [("model", 4, "mtp"), ("model", 0, "none"), ("auto", 4, "auto"), ("ngram", 4, "ngram"), ("translated", 2, "mtp")],
)
def test_who_drafts_where_the_pairs_draft_is_a_head(name, k, expected):
    assert kinds.drafting(name, k, "mtp").kind.name == expected


def test_the_rule_that_takes_effect():
    assert kinds.effective_rule("auto", 3, 0.7).name == "coupled"
    assert kinds.effective_rule("auto", None, 0.7).name == "block"
    assert kinds.effective_rule("token", 3, 0.7).name == "token"
    assert kinds.effective_rule("block", 3, 0.0).name == "greedy"


def test_only_rounds_of_a_drafter_that_learns_teach():
    assert [kinds.learns_from(name) for name in ("model", "ngram", "none", "toy", "unheard of")] == [
        True,
        False,
        False,
        True,
        False,
    ]
