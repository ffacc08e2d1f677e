"""Law: a draft with a tokenizer of its own changes no answer, whatever of the target's words it has no id for.

Its network agrees with the target about half of the time, once ids are translated; of every nine words it lacks one.
"""

from itertools import zip_longest

import pytest

from fakes.broken_rules import once_drafted, raw_residual
from fakes.chat import BYTES, networks
from fakes.models import tiny_network
from fakes.translated import translated
from laws.exact_law import assert_follows
from laws.seeded_answers import CASES, PROMPT, SMALL, K, answers
from laws.test_draft_context import MANY, NEVER_STOP, SOME, loaded, soak
from specdec_cli.core.events import RoundDone
from specdec_cli.core.request import MAX_ROWS, Request
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import TranslatedDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import Rejection, make_rule
from specdec_cli.engine.sampling.rejection import draw_token, plan_token
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.session.slot import Slot

MUTE = range(5, BYTES, 9)


@pytest.fixture
def pair(tmp_path):
    target, draft = networks("qwen3")
    return loaded(Slot(CachedModel(target, "t"), translated(draft, MUTE)), tmp_path)


def asked(k, seed=None, tokens=40):
    sampling = {"temperature": 0.8} if seed is not None else {}
    return Request(tokens, k=k, seed=seed, sampling=sampling, logit_bias=NEVER_STOP, drafter="model")


def rounds_of(events):
    return [event.round for event in events if isinstance(event, RoundDone)]


def said(rounds):
    return [token for round in rounds for token in round.emitted]


TEXT = [3 + (7 * i * i + i) % 97 for i in range(60)]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("k", [1, 4, 9, "auto"])
def test_every_k_says_what_plain_decoding_says(pair, k, seed):
    rounds = rounds_of(pair.session().reply(TEXT, asked(k, seed)))
    assert said(rounds) == [step.token for step in pair.session().plain(TEXT, asked(k, seed))]
    drafted = [round for round in rounds if round.draft]
    assert {round.drafter for round in drafted} <= {"translated"}
    if k != "auto":
        assert sum(round.accepted for round in drafted) and any(round.rejected is not None for round in drafted)


@pytest.mark.parametrize("emitted", range(1, 12))
def test_a_reply_that_is_left_between_rounds_leaves_caches_of_what_was_said(pair, emitted):
    session = pair.session()
    context, events = list(TEXT), session.reply(TEXT, asked(3))
    for event in events:
        if isinstance(event, RoundDone):
            context += event.round.emitted
            if len(context) - len(TEXT) >= emitted:
                break
    events.close()
    further = [*context, 7, MUTE[4], 8]
    again = said(rounds_of(session.reply(further, asked(3))))
    assert again == [step.token for step in session.plain(further, asked(3))]


def test_two_conversations_are_each_as_if_alone(pair):
    prompts, sessions = (TEXT, TEXT[:31]), (pair.session(), pair.session())
    replies = [session.reply(prompt, asked(3)) for session, prompt in zip(sessions, prompts, strict=True)]
    both = [[], []]
    for events in zip_longest(*replies):
        for found, event in zip(both, events, strict=True):
            found += [event] if event else []
    for found, prompt in zip(both, prompts, strict=True):
        assert said(rounds_of(found)) == [step.token for step in pair.session().plain(prompt, asked(3))]


@pytest.mark.parametrize(
    ("n", "turns"), [pytest.param(None, SOME), *(pytest.param(n, MANY, marks=pytest.mark.full) for n in (8, 33, None))]
)
def test_a_conversation_with_edits_is_plain_decoding(n, turns, tmp_path):
    """Answered, retried, taken back and begun anew; with N, the draft holds its own ids of the end alone."""
    target, draft = networks("qwen3")
    slot = Slot(CachedModel(target, "t"), translated(draft, MUTE, recent=n))

    def held(session):
        draft = session.slot.draft
        return draft.length - draft.origin, 2 * n + MAX_ROWS if n else draft.length

    accepted, rejected = soak(loaded(slot, tmp_path), held, turns)
    assert accepted > turns / 4 and rejected > turns


def small_pair():
    """16 tokens, of which the draft has no id for two."""
    return tiny_network(SMALL, seed=1), translated(tiny_network(SMALL, seed=1, noise=0.1), mute=(5, 9))


def texts_of(rule_for, sampling, n):
    network, draft = small_pair()
    target = CachedModel(network, "target")

    def begin(seed, context):
        rule = rule_for(Sampler(sampling, seed, PROMPT, target.vocab_size))
        return Drafters(TranslatedDrafter(draft, target.vocab_size, rule), K), rule

    return answers(target, begin, n)


def assert_law(rule_for, sampling, n):
    """The draft's own law only orders what is compared: its network over the target's ids stands for it."""
    texts, rounds = texts_of(rule_for, sampling, n)
    assert any(round.accepted for round in rounds) and any(round.rejected is not None for round in rounds)
    assert_follows((small_pair()[0], tiny_network(SMALL, seed=1, noise=0.1)), PROMPT, texts, sampling)


def broken(sampler):
    return Rejection("token", once_drafted(raw_residual(plan_token), plan_token), draw_token, sampler)


def test_a_few_answers_follow_the_target():
    assert_law(lambda sampler: make_rule("block", sampler), Sampling(1.0), 120)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "sampling"), CASES)
def test_answers_follow_the_target(rule, sampling):
    """N = 1000 answers of 4 tokens, K = 2."""
    assert_law(lambda sampler: make_rule(rule, sampler), sampling, 1000)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_residual_that_forgets_the_draft_is_noticed():
    """Negative control."""
    with pytest.raises(AssertionError, match="odds"):
        assert_law(broken, Sampling(1.0), 1000)
