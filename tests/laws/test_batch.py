"""Replies that share their passes say what each says alone, whoever comes and goes when: over every kind of cache."""

import random
import time
from collections.abc import Sequence
from itertools import permutations

import mlx.core as mx
import pytest

from conformance.architectures import architectures, tiny_network
from fakes.gemma import agreeing_assistant
from fakes.heads import agreeing_head, cached_head, tiny_target
from specdec_cli.core.errors import Refused
from specdec_cli.core.events import Round
from specdec_cli.engine.batch import LONGEST_PROMPT, Batch, Member, Part, Prompt, prove, read_prompts
from specdec_cli.engine.cache import rows
from specdec_cli.engine.cache.cache_kinds import leaves
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.base import DraftStep, finished, read_together
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.lookup import LookupDrafter
from specdec_cli.engine.drafters.stepwise import HeadDrafter, ModelDrafter
from specdec_cli.engine.heads.cached_head import CachedHead
from specdec_cli.engine.model import CachedModel, Network
from specdec_cli.engine.planning.costs import Costs
from specdec_cli.engine.planning.history import History
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling


class Reply:
    """`tokens` tokens after `context`, which grows; it is cancelled after so many rounds, if after any."""

    def __init__(
        self,
        target: CachedModel,
        drafters: Drafters,
        rule: AcceptanceRule,
        context: Sequence[int],
        tokens: int,
        cancelled_after: float = float("inf"),
    ) -> None:
        self.target, self.context, self.rounds = target, list(context), list[Round]()
        self.asks: Part | DraftStep | None = None
        self.ended = False
        self._drafters, self._rule, self._tokens, self._last = drafters, rule, tokens, cancelled_after

    def begin(self, batch: Batch) -> None:
        """Its prompt is read, and nothing decoded yet."""
        self.target.reuse(self.context)
        self.target.commit(self.context, min(self.target.length, self._drafters.keeps(self.context)))
        for _ in read_together(self.target, self._drafters.drafter, self.context):
            pass
        self.member = Member(batch)
        self._steps = decode(
            self.target, self._drafters, self._rule, self.context, self._tokens, frozenset(), time.perf_counter,
            lambda: len(self.rounds) >= self._last, member=self.member,
        )  # fmt: skip

    def go_on(self) -> None:
        """Up to its next round, to what it asks for, or to its end."""
        step = next(self._steps, None)
        self.asks, self.ended = step if isinstance(step, Part | DraftStep) else None, step is None
        if isinstance(step, Round):
            self.rounds.append(step)


def run_alone(reply: Reply, batch: Batch) -> list[int]:
    """Its context at its end."""
    reply.begin(batch)
    while not reply.ended:
        reply.go_on()
    return reply.context


def run_together(batch: Batch, replies: Sequence[Reply], seed: int) -> int:
    """All of `replies`, to their ends; who joins, leaves and drafts when is drawn. Returns how many rounds were shared.

    Whoever runs them may go on with some of those who draft, while the others wait.
    """
    chance, coming, running = random.Random(seed), list(replies), list[Reply]()
    while coming or running:
        if coming and (not running or chance.random() < 0.4):
            running.append(coming.pop(0))
            running[-1].begin(batch)
            running[-1].member.shares = True
        for reply in running:
            if chance.random() < 0.15:
                reply.member.shares = chance.random() < 0.75
        alone = [reply for reply in running if not reply.asks]
        if alone and chance.random() < 0.8:
            chance.choice(alone).go_on()
        elif drafting := [reply for reply in running if isinstance(reply.asks, DraftStep)]:
            some = [reply for reply in drafting if chance.random() < 0.8] or drafting
            for error in filter(None, batch.answer([reply.asks for reply in some if reply.asks]).values()):
                raise error
            for reply in some:
                reply.go_on()
        elif asking := [reply for reply in running if reply.asks]:
            share(batch, asking, chance.random() < 0.5)
        running = [reply for reply in running if not reply.ended]
    return sum(round.batch_size > 1 for reply in replies for round in reply.rounds)


def share(batch: Batch, asking: Sequence[Reply], ahead: bool) -> None:
    """A pass of all who ask; `ahead`: all share the next one, so that it is queued at once if nobody drafts."""
    for reply in asking:
        reply.member.shares |= ahead
    errors = batch.answer([reply.asks for reply in asking if reply.asks])
    for reply in asking:
        if reply.asks in errors:
            if error := errors[reply.asks]:
                raise error
            reply.go_on()  # it reads
            while reply.member.shares and not (reply.asks or reply.ended):
                reply.go_on()


# Full, windowed, shared, latent and recurrent caches, alone and mixed; learned positions; experts; sinks.
NAMES = (
    "qwen3", "llama", "gemma2", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss", "cohere2", "olmo3", "mimo_v2_flash",
    "qwen3_5", "qwen3_next", "rwkv7", "mamba2", "lfm2", "falcon_h1", "jamba", "kimi_linear", "nemotron_h",
    "recurrent_gemma", "deepseek_v3", "gpt2", "mixtral", "ministral3", "baichuan_m1",
)  # fmt: skip
LENGTHS, TOKENS, PAST_WINDOW = (1, 9, 14, 30), (40, 12, 50, 8), 1
EACH = [pytest.param(name, marks=() if name in NAMES[:1] else pytest.mark.slow) for name in NAMES]


def prompt(number, length):
    return [(5 * i + 7 * number) % 97 + 3 for i in range(length)]


class Replies:
    """Replies over one tiny network; those of a draft reject now and then, of another architecture nearly always.

    A `row` more costs so many plain steps: by default so few that drafts pay in any company.
    """

    def __init__(self, name, rule=greedy, drafts=True, row=0.01, draft=None):
        self.architecture = architectures()[name]
        self.network = Network(tiny_network(self.architecture, 1), name)
        drafting = architectures()[draft or name]
        self.draft = Network(tiny_network(drafting, 1, drafting.noise), "draft")
        self._rule, self._drafts, self._row, self.drafted = rule, drafts, row, 0
        self.batch = prove(self.network, self.draft)

    def reply(self, number, cancelled_after=float("inf")):
        target = CachedModel(self.network)
        size, window = target.vocab_size, (self.architecture.window or 0) if number == PAST_WINDOW else 0
        drafter = ModelDrafter(CachedModel(self.draft), size, self._rule(size))
        costs = History(Costs({2: 1 + self._row}, {1: 0.01}), max_k=3)
        drafters = Drafters(drafter, 2 + number % 2, history=costs) if self._drafts else Drafters()
        context = prompt(number, LENGTHS[number])
        return Reply(target, drafters, self._rule(size), context, TOKENS[number] + window, cancelled_after)

    def alone(self):
        return [run_alone(self.reply(number), self.batch) for number in range(len(LENGTHS))]

    def go_on(self, target, context):
        """Twelve tokens more, with the caches as they are."""
        return run_alone(Reply(target, Drafters(), greedy(target.vocab_size), context, 12), self.batch)

    def differ(self, seeds):
        """Seeds for which some reply says other words, now or when it is gone on with alone."""
        alone, found, shared = self.alone(), [], 0
        later = [self.go_on(CachedModel(self.network), [*context, 5]) for context in alone]
        for seed in seeds:
            replies = [self.reply(number) for number in range(len(LENGTHS))]
            shared += run_together(self.batch, replies, seed)
            self.drafted += sum(bool(round.draft) for one in replies for round in one.rounds if round.batch_size > 1)
            assert not self.batch.members and all(part.empty() for part in leaves(self.batch.rows.layers))
            said = [reply.context[:] for reply in replies]
            after = [self.go_on(reply.target, [*reply.context, 5]) for reply in replies]
            found += [seed] if said != alone or after != later else []
        assert shared > 15 * len(seeds)
        return found


@pytest.mark.parametrize("orders", [2, pytest.param(12, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", EACH)
def test_every_reply_says_what_it_says_alone_joining_and_leaving_at_any_round(name, orders):
    """And its caches are then as good as its own: it goes on with them as from a prompt that was read."""
    replies = Replies(name)
    assert not replies.differ(range(orders))
    assert replies.drafted > 8 * orders or not replies.batch.takes_drafts
    assert replies.batch.takes_drafts == (replies.batch.rows.takes_back and replies.network.positions is None)


@pytest.mark.parametrize("draft", ["gpt_bigcode", "afm7", pytest.param("internlm3", marks=pytest.mark.slow)])
def test_a_draft_that_cannot_run_in_shared_rows_is_made_alone_in_passes_that_are_shared(draft):
    """Each reply that drafted with it failed, or it drafted what it would not alone."""
    replies = Replies("qwen3", draft=draft)
    assert replies.batch.takes_drafts and replies.batch.drafts is None
    assert not replies.differ(range(1)) and replies.drafted


def test_replies_begin_to_draft_together_where_one_alone_would_not():
    """It would pay for the rows of all."""
    replies = Replies("qwen3", row=0.3)
    assert not replies.differ(range(2)) and replies.drafted > 16


@pytest.mark.parametrize("name", [EACH[0], pytest.param("gemma3_text", marks=pytest.mark.slow)])
def test_a_draft_whose_steps_others_shared_is_the_one_that_is_made_alone(name, monkeypatch):
    """Also after rejections, where K differs, and past a window. The control forgets columns that hold no token."""
    replies, sharers, step = Replies(name), [], Batch.draft
    monkeypatch.setattr(Batch, "draft", lambda self, steps: (sharers.append(len(steps)), step(self, steps)))

    def alone(reply, context, k):
        size = reply.target.vocab_size
        return finished(
            ModelDrafter(CachedModel(replies.draft), size, greedy(size)).propose(context, k)
        ).tokens.tolist()

    def mistaken(seed):
        """Rounds whose draft is not the network's own."""
        some, found = [replies.reply(number) for number in range(len(LENGTHS))], 0
        places = [len(reply.context) for reply in some]
        run_together(replies.batch, some, seed)
        for reply, place in zip(some, places, strict=True):
            for round in reply.rounds:
                drafted = [*round.draft]
                found += bool(drafted) and drafted != alone(reply, reply.context[:place], len(drafted))
                place += len(round.emitted)
        return found

    assert not any(map(mistaken, range(3))) and sum(many > 1 for many in sharers) > 20
    monkeypatch.setattr(rows.Columns, "take_back", lambda self, row, count: None)
    assert mistaken(0)


def headed(kind):
    target = tiny_target("gemma4_text" if kind == "assistant" else "qwen3")
    head = (agreeing_assistant(target) if kind == "assistant" else cached_head(target, agreeing_head(target))).head
    return target, lambda own: HeadDrafter(CachedHead(head), own, greedy(target.vocab_size))


@pytest.mark.parametrize("kind", ["head", "lookup", pytest.param("assistant", marks=pytest.mark.slow)])
def test_heads_and_lookups_draft_in_shared_passes(kind):
    """A head reads its rows of the pass; what is looked up costs no pass at all. An assistant reads the target's own
    caches, which lag behind once a pass was shared: it drafts in the first one alone.
    """
    target, drafter = headed(kind)
    batch, drafted = prove(target.network), 0
    assert batch.takes_drafts

    def reply(number):
        own, cheap = CachedModel(target.network), History(Costs({2: 1.01}, {1: 0.01}), 3 * (kind != "lookup"))
        looks = LookupDrafter() if kind == "lookup" else None
        drafters = Drafters(None if looks else drafter(own), "auto", looks, history=cheap)
        return Reply(own, drafters, greedy(own.vocab_size), prompt(number, LENGTHS[number] + 2), 60)

    alone = [run_alone(reply(number), batch) for number in range(len(LENGTHS))]
    for seed in range(2):
        replies = [reply(number) for number in range(len(LENGTHS))]
        run_together(batch, replies, seed)
        assert [one.context for one in replies] == alone
        drafted += sum(len(round.draft) > 0 for one in replies for round in one.rounds if round.batch_size > 1)
    assert drafted > (10 if kind != "assistant" else 0)


def stays(cache, source, row):
    """The last row is not moved where one went."""


def mixed(batch):
    """Two rows are swapped."""
    queue = Batch.queue

    def swapped(self, tokens):
        queue(self, tokens)
        first, second, *_ = [*self.queued, None, None]
        if second is not None:
            self.queued[first], self.queued[second] = self.queued[second], self.queued[first]

    return swapped


def shifted(rows_, row, length, part):
    """One position too far is handed back."""
    return HAND_BACK(rows_, row, length - 1, part)


HAND_BACK = rows.KeyValueRows.hand_back


@pytest.mark.parametrize(
    ("name", "owner", "method", "broken"),
    [
        pytest.param("qwen3", rows.KeyValueRows, "move", stays, marks=pytest.mark.slow),
        pytest.param("qwen3", Batch, "queue", mixed(Batch), marks=pytest.mark.slow),
        pytest.param("qwen3", rows.KeyValueRows, "hand_back", shifted, marks=pytest.mark.slow),
        pytest.param("rwkv7", rows.StateRows, "begin_pass", lambda rows: None, marks=pytest.mark.slow),
        pytest.param("gemma3_text", rows.KeyValueRows, "make_mask", lambda *args, **more: None, marks=pytest.mark.slow),
    ],
)
def test_a_mistaken_row_is_found(name, owner, method, broken, monkeypatch):
    """Negative controls."""
    replies = Replies(name)
    monkeypatch.setattr(owner, method, broken)
    try:
        assert replies.differ(range(8))
    except (ValueError, IndexError, AttributeError):
        pass  # a row that is not there


def drawing(name, seed=7, **sampling):
    """A rule of its own at each call, under one seed."""
    return lambda size: make_rule(name, Sampler(Sampling(temperature=0.9, **sampling), seed, prompt(0, 20), size))


@pytest.mark.parametrize(
    "sampling",
    [
        {"repetition_penalty": 1.3, "top_k": 20},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"frequency_penalty": 0.7}, marks=pytest.mark.slow),
    ],
)
def test_under_a_seed_each_draws_its_own(sampling):
    assert not Replies("qwen3", drawing("coupled", **sampling)).differ(range(2))


@pytest.mark.parametrize(
    "rule", ["token", *(pytest.param(rule, marks=pytest.mark.slow) for rule in ("block", "match"))]
)
def test_where_nothing_is_drafted_every_rule_draws_the_same_alone_and_in_shared_passes(rule):
    assert not Replies("qwen3", drawing(rule), drafts=False).differ(range(2))


@pytest.mark.slow
def test_a_reply_may_be_cancelled_while_it_shares():
    replies = Replies("qwen3")
    alone = replies.alone()
    for seed in range(6):
        shared = [replies.reply(number, 3 + seed if number == 2 else float("inf")) for number in range(len(LENGTHS))]
        run_together(replies.batch, shared, seed)
        cut = shared[2].context
        assert [reply.context for reply in shared if reply.context is not cut] == [*alone[:2], alone[3]]
        assert cut == alone[2][: len(cut)] and len(cut) < len(alone[2]) and not replies.batch.members
        assert replies.go_on(shared[2].target, cut) == alone[2][: len(cut) + 12]


def test_a_row_of_values_that_are_no_numbers_spoils_no_row_after_it():
    """A masked value weighs 0, and 0 times NaN is NaN."""
    replies = Replies("qwen3")
    layers = CachedModel(replies.network)
    long, spoiled, late = prompt(0, 40), prompt(1, 30), prompt(2, 6)
    members, models = [Member(replies.batch) for _ in range(3)], [CachedModel(replies.network) for _ in range(3)]
    for member, model, context in zip(members[:2], models[:2], (long, spoiled), strict=True):
        model.catch_up(context)
        model.join(member)
    for part in leaves(replies.batch.rows.layers):
        part.values[1] = mx.array(float("nan"))
    models[1].leave(spoiled, len(spoiled) - 1)
    models[2].catch_up(late)
    models[2].join(members[2])
    replies.batch.queue(
        {member: mx.array(context[-1:]) for member, context in ((members[0], long), (members[2], late))}
    )
    expected = [layers.fresh().logits(context, mx.array([], mx.int32)) for context in (long, late)]
    found = [replies.batch.queued[member].logits for member in (members[0], members[2])]
    for ours, theirs in zip(found, expected, strict=True):
        assert mx.allclose(ours, theirs, atol=1e-4)


def read_and_go_on(network, held, contexts, together):
    """What each of `contexts` goes on with, of which its caches hold so many tokens; the rest is read."""
    targets = [CachedModel(network) for _ in contexts]
    for target, context, tokens in zip(targets, contexts, held, strict=True):
        target.catch_up(context[: tokens + 1])
    if together:
        read_prompts([Prompt(target, context) for target, context in zip(targets, contexts, strict=True)])
    assert not together or [target.length for target in targets] == [len(context) - 1 for context in contexts]
    batch = Batch(network)
    return [
        run_alone(Reply(target, Drafters(), greedy(target.vocab_size), context, 12), batch)
        for target, context in zip(targets, contexts, strict=True)
    ]


READ = ("qwen3", "llama", "gpt2", "deepseek_v3", "mixtral", "gemma2", "phi3", "cohere", "olmo2", "starcoder2")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name != READ[0] else ()) for name in READ]
)
def test_prompts_that_are_read_in_one_pass_are_as_if_each_was_read_alone(name, monkeypatch):
    """Of any lengths, after any prefix that is there; a mask that forgets where rows begin is found."""
    network = Network(tiny_network(architectures()[name], 1), name)
    contexts, held = [prompt(n, length) for n, length in enumerate((4, 30, 17, 18))], (0, 12, 0, 7)
    alone = read_and_go_on(network, held, contexts, together=False)
    assert read_and_go_on(network, held, contexts, together=True) == alone
    make_mask = rows.KeyValueRows.make_mask
    forgetful = lambda cache, *args, **more: make_mask(cache, *args, **more)[3:4]  # noqa: E731
    monkeypatch.setattr(rows.KeyValueRows, "make_mask", forgetful)
    assert read_and_go_on(network, held, contexts, together=True) != alone


def test_a_prompt_is_never_read_with_others_where_a_head_reads_its_states():
    network = Network(tiny_network(architectures()["qwen3"], 1), "m")
    target, context = CachedModel(network), prompt(0, 20)
    assert Prompt(target, context).is_shareable
    assert not Prompt(target, context[:1]).is_shareable
    assert Prompt(target, prompt(0, LONGEST_PROMPT)).is_shareable
    assert not Prompt(target, prompt(0, LONGEST_PROMPT + 1)).is_shareable
    network.hidden.expose()
    assert not Prompt(target, context).is_shareable


# Every architecture whose requests share passes, in rows of any lengths; and those whose requests take turns.


SCORES, KINDS, INTEGERS = "do not score as each alone", "of one conversation alone", "convert"
TURNS = {
    "afm7": SCORES,
    "minimax_m3_vl": SCORES,
    "deepseek_v41": KINDS,
    "llama4": KINDS,
    "gpt_bigcode": INTEGERS,
    "internlm2": INTEGERS,
    "internlm3": INTEGERS,
    "longcat_flash_ngram": "no row among those",
}
FAST = ("afm7", "minimax_m3_vl", "longcat_flash_ngram")
# One in eight of those that share is slow, and the others are full: seconds each.
ONE_IN = 8
SHARING = [name for name, found in architectures().items() if name not in TURNS and not found.metal_only]
SHORT, MOST, FEW_TOKENS = (1, 2, 3, 40), 200, 6


def named(names):
    marks = {name: pytest.mark.full if at % ONE_IN else pytest.mark.slow for at, name in enumerate(names)}
    return [name if name in FAST else pytest.param(name, marks=marks[name]) for name in names]


class Prompts:
    """Prompts of so many tokens over one tiny network, each read once; `alone` are they with what follows."""

    def __init__(self, name, lengths):
        self.network = Network(tiny_network(architectures()[name], 1), name)
        self._read, self.alone = [], []
        for number, length in enumerate(lengths):
            context = [(5 * at + 7 * number) % 97 + 3 for at in range(length)]
            model = CachedModel(self.network)
            model.catch_up(context)
            self._read.append((model, context))
            self.alone.append(run_alone(self._reply(number), Batch(self.network)))

    def _reply(self, number):
        model, context = self._read[number]
        target = model.copy(len(context) - 1)
        return Reply(target, Drafters(), greedy(target.vocab_size), context, FEW_TOKENS)

    def differ(self, batch, orders):
        """Those of `orders`, each a seed and the numbers of prompts as they come, in which some answer is another."""
        found, shared = [], 0
        for seed, numbers in orders:
            replies = [self._reply(number) for number in numbers]
            shared += run_together(batch, replies, seed)
            if [reply.context for reply in replies] != [self.alone[number] for number in numbers]:
                found.append((seed, numbers))
        assert shared > 5 * len(orders) and not batch.members
        return found


def drawn(lengths, count):
    """`count` orders of four prompts."""
    return [(seed, random.Random(seed).sample(range(len(lengths)), 4)) for seed in range(count)]


@pytest.mark.parametrize("name", named(SHARING))
def test_rows_of_one_two_three_and_forty_tokens_join_each_other_in_every_order(name):
    """A request of one token was given a zero for a recurrent state where none is: recurrent_gemma scored otherwise."""
    prompts = Prompts(name, SHORT)
    assert not prompts.differ(prove(prompts.network), list(enumerate(permutations(range(len(SHORT))))))


@pytest.mark.full
@pytest.mark.parametrize("name", SHARING)
def test_two_hundred_orders_of_rows_of_one_to_two_hundred_tokens_differ_in_no_answer(name):
    lengths = [*SHORT, MOST, *random.Random(name).sample(range(4, MOST), 15)]
    prompts = Prompts(name, lengths)
    assert not prompts.differ(prove(prompts.network), drawn(lengths, 200))


@pytest.mark.slow
def test_blocks_of_columns_that_are_let_in_are_found():
    """The negative control: without the proof, a layer selects other blocks for the shorter rows."""
    lengths = (18, 30, 40, 100)
    prompts = Prompts("minimax_m3_vl", lengths)
    assert prompts.differ(Batch(prompts.network), drawn(lengths, 12))


@pytest.mark.parametrize("name", named(TURNS))
def test_a_network_that_cannot_is_found_before_anybody_shares(name):
    network = Network(tiny_network(architectures()[name], 1), name)
    with pytest.raises(Refused, match=TURNS[name]):
        prove(network)
