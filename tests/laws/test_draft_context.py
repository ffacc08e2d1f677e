"""Law: a draft that reads only the end of a context changes no answer, however long the conversation becomes.

Many turns of one session, in which messages are answered, retried, taken back and sent anew. Each answer is that of
mlx-lm's own plain decoding, greedy and under seeds in turn; drafts are accepted and rejected, and the draft, whatever
drafts, holds no more than it may.
"""

import random
from itertools import islice

import pytest

from fakes.chat import loaded, tokenizer_in
from laws.pairs import ASSISTANTS, CACHES, HEADS, OTHER, PROMPT, asked, pair_of, plain, rounds_of, said, slot_of
from specdec_cli.core.events import Finish, Prefill, RoundDone, Start
from specdec_cli.core.request import MAX_ROWS

# Turns in the tiers `full`, `slow` and the default one, and tokens of each answer.
MANY, SOME, FEW_TURNS, SAID = 50, 16, 8, 12
# (target, its draft's caches if those of another pair, tokens that the draft reads): each kind of cache as the draft of
# a plain target, and as the target of a plain draft; then heads, assistants, and drafts with a tokenizer of their own.
PAIRS = [("plain", kind) for kind in CACHES] + [(kind, "plain") for kind in CACHES if kind != "plain"]
EACH = [*((*pair, n) for pair in PAIRS for n in (8, 33)), ("head", None, 8), ("head", None, 33)]
EACH += [*((kind, None, None) for kind in ASSISTANTS), *(("translated", None, n) for n in (8, 33, None))]
FEW = [("plain", "plain", 9), ("plain", "window", 8), ("recurrent", "plain", 33), ("head", None, 8)]
TIERED = [
    pytest.param("translated", None, None, FEW_TURNS),
    *(pytest.param(*case, SOME, marks=pytest.mark.slow) for case in (*FEW, ("assistant", None, None))),
    *(pytest.param(*case, MANY, marks=pytest.mark.full) for case in EACH),
]


@pytest.fixture(autouse=True)
def _short_chunks(device_says):
    """Prefills of a few tokens are already in many chunks."""
    device_says(prefill_tokens=7)


def request(turn):
    """Greedy, and under a seed at 0.8."""
    return asked((3, 1, 7)[turn % 3], turn if turn % 2 else None, SAID)


def conversation(draw, turns):
    """Prompts of a conversation: what was said goes on, is asked again, is taken back in part, or begins anew."""
    context, answer = [], []
    for _ in range(turns):
        happened = draw.choice(["goes on"] * 6 + ["retried", "taken back", "anew"])
        message = [draw.randrange(3, 99) for _ in range(draw.choice([1, 5, 20]))]
        if happened == "goes on":
            context = [*context, *answer, *message]
        elif happened == "taken back":
            context = [*context[: draw.randrange(len(context) + 1)], *message]
        elif happened == "anew":
            context = message
        context = context or message
        answer = yield context


def held(kind, draft, n):
    """(entries or bytes that a draft of this kind holds, the most that may be)."""
    if kind in HEADS:
        keys = draft._cache.keys
        return 0 if keys is None else keys.shape[2], 2 * max(n, MAX_ROWS) + 256
    if kind in ASSISTANTS:
        return draft.nbytes, (MAX_ROWS + 1) * 64 * 4
    return draft.length - draft.origin, 2 * n + MAX_ROWS if n else draft.length


@pytest.mark.parametrize(("target", "draft", "n", "turns"), TIERED)
def test_a_conversation_with_a_draft_of_the_last_tokens_is_plain_decoding(target, draft, n, turns, tmp_path):
    """An assistant holds the last states alone, and reads the target's keys wherever edits and windows left them."""
    pair, draw, accepted, rejected = loaded(slot_of(target, n, draft), tokenizer_in(tmp_path)), random.Random(5), 0, 0
    session, prompts = pair.session(), conversation(draw, turns)
    prompt = next(prompts)
    for turn in range(turns):
        events = list(session.reply(prompt, request(turn)))
        assert said(events) == plain(pair, prompt, request(turn)), turn
        accepted += sum(round.accepted for round in rounds_of(events))
        rejected += sum(round.rejected is not None for round in rounds_of(events))
        entries, most = held(target, session.slot.draft, n)
        assert entries <= most, turn
        if turn < turns - 1:
            prompt = prompts.send(said(events))
    least = 0 if draft else turns / 4 if target == "translated" else turns
    assert rejected > turns and (accepted > least or draft not in (None, target))


@pytest.mark.slow
def test_bytes_and_reading_are_bounded_however_long_the_context(tmp_path):
    """The draft reads N tokens of a prompt at most, N again where its room is full, and its caches stay what they are.

    One without a bound reads all and grows: the control.
    """
    n, request = 33, asked(3, tokens=80)
    prompt = [3 + (7 * i * i + i) % 97 for i in range(500)]
    sizes, read = {}, {}
    for recent in (n, None):
        session, sizes[recent], read[recent] = (
            loaded(slot_of("plain", recent), tokenizer_in(tmp_path)).session(),
            [],
            [],
        )
        for length in (100, 500):
            events = list(session.reply(prompt[:length], request))
            sizes[recent].append(session.slot.draft.nbytes)
            (start,) = (e for e in events if isinstance(e, Start))
            (finish,) = (e for e in events if isinstance(e, Finish))
            assert start.draft_context == recent
            read[recent].append(finish.stats["draft_read_tokens"])
    assert len(set(sizes[n])) == 1
    assert sizes[None] == sorted(sizes[None]) and sizes[None][-1] > 2 * sizes[n][0] > 0
    # The last N but the newest, and as many again each time that N further tokens filled the room: twice in 80.
    assert all(n - 1 <= tokens <= 3 * (n - 1) for tokens in read[n])
    assert read[None][-1] > 100


class Counted:
    """A network that notes how many tokens each of its passes was fed."""

    def __init__(self, module):
        self._module, self.passes = module, []

    def __call__(self, tokens, **caches):
        self.passes.append(tokens.size)
        return self._module(tokens, **caches)

    def __getattr__(self, name):
        return getattr(self._module, name)


MORE = [pytest.param(*more, marks=pytest.mark.full) for more in (("plain", 33), ("window", 33), ("recurrent", 12))]


@pytest.mark.parametrize(("draft", "n"), [("window", 12), *MORE])
def test_a_draft_reads_the_last_n_tokens_and_anew_where_twice_as_many_are_held(draft, n, tmp_path, device_says):
    """Counted anew from each round's place in the text; what an event tells is what the draft's passes were fed.

    A sum over an answer hid a first reading that was a token short, and one that came a token late.
    """
    device_says(queues_ahead=False)  # a round's passes come before it
    slot = slot_of("plain", n, draft)
    slot.draft.network.module = counted = Counted(slot.draft.network.module)
    session = loaded(slot, tokenizer_in(tmp_path)).session()
    length, origin, held = 100, None, set()
    for event in session.reply([3 + (7 * i * i + i) % 97 for i in range(length)], asked(2, tokens=2 * n + 15)):
        if not isinstance(event, RoundDone):
            continue
        round, expected = event.round, 0
        held.add(length - (origin or 0))
        if round.draft and (origin is None or length - origin > 2 * n):
            expected, origin = n - 1, length - n
        # A draft step feeds one token, or two after full acceptance; a chunk of the context feeds more.
        read = sum(fed for fed in counted.passes if fed > 2)
        assert (round.draft_read_tokens, read) == (expected, expected), round.index
        length += len(round.emitted)
        counted.passes.clear()
    assert draft == "plain" or {2 * n, 2 * n + 1} <= held


# What drafts keeps what its target keeps: it reads only what is new, and guesses as if it had read all anew.


QUICK = ("plain", "head", "assistant")
SLOW = ("window", "recurrent", "translated", "head of experts", "medusa")


@pytest.fixture(scope="module", params=[*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)])
def pair(request, tmp_path_factory):
    return pair_of(request.param, tmp_path_factory.mktemp("pair"))


def test_a_second_turn_reads_only_what_is_new(pair):
    session = pair.session()
    first = said(session.reply(PROMPT, asked(3)))
    events = list(session.reply([*PROMPT, *first, 9, 8], asked(3)))
    prefill = next(event for event in events if isinstance(event, Prefill))
    assert prefill.cached_tokens >= len(PROMPT) + len(first) - 2


def test_after_a_rejection_a_draft_is_that_of_one_that_read_the_text_anew(pair):
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
