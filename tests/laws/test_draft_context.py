"""Law: a draft that reads only the end of a context changes no answer, however long the conversation becomes.

Many turns of one session, in which messages are answered, retried, taken back and sent anew. Each answer is that of
mlx-lm's own plain decoding, greedy and under seeds in turn; drafts are accepted and rejected, and the draft holds no
more than it may.
"""

import random

import pytest

from fakes.chat import networks, tokenizer_in
from fakes.gemma import agreeing_assistant
from fakes.heads import agreeing_head, cached_head, tiny_target
from specdec_cli.core.events import Finish, RoundDone, Start
from specdec_cli.core.request import MAX_ROWS, Request
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

MANY, SOME, SAID = 50, 16, 12  # turns in the tier `full` and in `slow`, and tokens of each answer
NEVER_STOP = tuple((token, -1e9) for token in (0, 1, 2))
KINDS = {
    "plain": "qwen3",
    "window": "gemma3_text",
    "chunks": "llama4",
    "recurrent": "qwen3_5",
    "state": "mamba2",
    "recurrent and window": "recurrent_gemma",
}
# Each kind as the draft of a plain target, and as the target of a plain draft.
PAIRS = [("plain", kind) for kind in KINDS] + [(kind, "plain") for kind in KINDS if kind != "plain"]
FEW = [("plain", "plain", 9), ("plain", "window", 8), ("recurrent", "plain", 33)]
TIERED = [
    *(pytest.param(*case, SOME, marks=pytest.mark.slow) for case in FEW),
    *(pytest.param(*pair, n, MANY, marks=pytest.mark.full) for pair in PAIRS for n in (8, 33)),
]


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch):
    """Prefills of a few tokens are already in many chunks."""
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 7)


def loaded(slot, folder):
    return LoadedPair(Pair("tiny", "t", "d"), ("t", "d"), tokenizer_in(folder), slot)


def request(turn):
    """Greedy, and under a seed at 0.8."""
    how = {"seed": turn, "sampling": {"temperature": 0.8}} if turn % 2 else {}
    return Request(max_tokens=SAID, k=(3, 1, 7)[turn % 3], logit_bias=NEVER_STOP, drafter="model", **how)


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


def soak(pair, held, turns):
    """(accepted, rejected) of so many turns; `held(session)` after each is (entries, the most that may be)."""
    session, draw = pair.session(), random.Random(5)
    prompts, accepted, rejected = conversation(draw, turns), 0, 0
    prompt = next(prompts)
    for turn in range(turns):
        rounds = [e.round for e in session.reply(prompt, request(turn)) if isinstance(e, RoundDone)]
        said = [token for round in rounds for token in round.emitted]
        assert said == [step.token for step in session.plain(prompt, request(turn))], turn
        accepted += sum(round.accepted for round in rounds)
        rejected += sum(round.rejected is not None for round in rounds)
        entries, most = held(session)
        assert entries <= most, turn
        if turn < turns - 1:
            prompt = prompts.send(said)
    return accepted, rejected


@pytest.mark.parametrize(("target", "draft", "n", "turns"), TIERED)
def test_a_conversation_with_a_draft_of_the_last_tokens_is_plain_decoding(target, draft, n, turns, tmp_path):
    target_network, draft_network = networks(KINDS[target])[0], networks(KINDS[draft])[1]
    slot = Slot(CachedModel(target_network, "t"), CachedModel(draft_network, "d", recent=n))

    def held(session):
        draft = session.slot.draft
        return draft.length - draft.origin, 2 * n + MAX_ROWS

    accepted, rejected = soak(loaded(slot, tmp_path), held, turns)
    assert rejected > turns and (accepted or target != draft)


@pytest.mark.parametrize(
    ("n", "turns"),
    [pytest.param(8, SOME, marks=pytest.mark.slow), *(pytest.param(n, MANY, marks=pytest.mark.full) for n in (8, 33))],
)
def test_a_conversation_with_a_head_of_the_last_tokens_is_plain_decoding(n, turns, tmp_path):
    target = tiny_target("qwen3_5")
    slot = Slot(target, cached_head(target, agreeing_head(target), recent=n))

    def held(session):
        keys = session.slot.draft._cache.keys
        return 0 if keys is None else keys.shape[2], 2 * max(n, MAX_ROWS) + 256

    accepted, rejected = soak(loaded(slot, tmp_path), held, turns)
    assert accepted > turns and rejected > turns


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        pytest.param("gemma4_text", SOME, marks=pytest.mark.slow),
        *(pytest.param(name, MANY, marks=pytest.mark.full) for name in ("gemma4", "gemma4_text")),
    ],
)
def test_a_conversation_with_an_assistant_is_plain_decoding(name, turns, tmp_path):
    """It holds the last states alone, and reads the target's keys wherever edits and windows have left them."""
    target = tiny_target(name)
    slot = Slot(target, agreeing_assistant(target))

    def held(session):
        return session.slot.draft.nbytes, (MAX_ROWS + 1) * 64 * 4

    accepted, rejected = soak(loaded(slot, tmp_path), held, turns)
    assert accepted > turns and rejected > turns


@pytest.mark.slow
def test_bytes_and_reading_are_bounded_however_long_the_context(tmp_path):
    """The draft reads N tokens of a prompt at most, N again where its room is full, and its caches stay what they are.

    One without a bound reads all and grows: the control.
    """
    n, asked = 33, Request(max_tokens=80, k=3, logit_bias=NEVER_STOP, drafter="model")
    prompt = [3 + (7 * i * i + i) % 97 for i in range(500)]
    sizes, read = {}, {}
    for recent in (n, None):
        target_network, draft_network = networks("qwen3")
        slot = Slot(CachedModel(target_network, "t"), CachedModel(draft_network, "d", recent=recent))
        session, sizes[recent], read[recent] = loaded(slot, tmp_path).session(), [], []
        for length in (100, 500):
            events = list(session.reply(prompt[:length], asked))
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
def test_a_draft_reads_the_last_n_tokens_and_anew_where_twice_as_many_are_held(draft, n, tmp_path, monkeypatch):
    """Counted anew from each round's place in the text; what an event tells is what the draft's passes were fed.

    A sum over an answer hid a first reading that was a token short, and one that came a token late.
    """
    monkeypatch.setattr("specdec_cli.engine.device.queues_ahead", lambda: False)  # a round's passes come before it
    drafting = CachedModel(networks(KINDS[draft])[1], "d", recent=n)
    drafting.network.module = counted = Counted(drafting.network.module)
    session = loaded(Slot(CachedModel(networks("qwen3")[0], "t"), drafting), tmp_path).session()
    length, origin, held = 100, None, set()
    asked = Request(max_tokens=2 * n + 15, k=2, logit_bias=NEVER_STOP, drafter="model")
    for event in session.reply([3 + (7 * i * i + i) % 97 for i in range(length)], asked):
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
