"""One target pass for several replies: a token of each and its draft behind it, from one reading of the weights.

A pass is bound by memory traffic, so a few rows more cost little. Only the network runs on all rows at once: each
reply keeps its rule, noise, constraint and penalties. Its logits are those that it would have alone, up to rounding: a
device may sum in another order where a pass has more rows, so a near-tie can flip.

A reply yields what it asks of whoever runs several: a `Prompt` to be read, a step of its draft, or its `Part` of the
next pass. `Batch.answer` answers several that are of one kind. Letters: K drafted tokens.

`prove` shows beforehand that a network scores several conversations in one pass as it scores each alone. A row begins
at any column, so a layer that selects, cuts or counts by column goes wrong there, once a row is longer than what it
selects. That length is found from the network itself: the graph of a pass gets other operations where a layer begins to
select. A graph is built without computing anything, so rows of any length can be asked about. The cost for most
networks: ten passes, over at most five tokens of a row, and two graphs; no long row is read. Where no layer begins to
select, passes may hold drafts: rows are tried that feed several tokens, and take some back.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from specdec_cli.core.errors import Refused, reason
from specdec_cli.engine import device
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.cache.rows import Rows
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.drafters.base import DraftStep
from specdec_cli.engine.hidden import same
from specdec_cli.engine.model import CachedModel, Network, Output
from specdec_cli.engine.planning.policy import Plan, Worth

# Tokens up to which a pass over a prompt is bound by reading the weights, so that a pass for several saves time.
LONGEST_PROMPT = 256


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What `target` is to read: all but the last token of `context`, of which it holds a part.

    Whoever runs the reply has it read together with others', or goes on: then the reply reads it itself.
    """

    target: CachedModel
    context: Sequence[int]

    @property
    def unread(self) -> int:
        """Tokens."""
        return len(self.context) - 1 - self.target.length

    @property
    def is_shareable(self) -> bool:
        """Whether it can be read together with others, and that saves time.

        Where a head reads its states, and where a rollback needs snapshots, a prompt is read alone.
        """
        alone = self.target.network.hidden.is_exposed or not self.target.trims
        return self.unread > 0 and len(self.context) <= LONGEST_PROMPT and not alone


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The part of `member` in the next pass: `tokens` [K + 1], of which the first was decoded. It waits until that ran.

    `judge` takes the logits behind them and how many replies share the pass, queues the verdict, and gives the token
    after it [1], lazy. With the pass the reply `ends` at the latest, if that says so.
    """

    member: Member
    tokens: mx.array
    judge: Callable[[Output, int], mx.array]
    ends: bool


Ask = Prompt | DraftStep | Part
"""What a reply yields where it asks for something of whoever runs it; it goes on once it is resumed."""


class Member:
    """A reply that may have a row in the passes of `batch`.

    Whoever runs the replies says whether it `shares` passes from its next round on. Its next round `drafts`, or would
    if its pass were not queued; `worth` tells the others what its drafts would be.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch, self.shares = batch, False
        self.drafts, self.worth = False, Worth()

    @property
    def others(self) -> list[Worth]:
        """What drafts are worth to all others who have a row."""
        return [other.worth for other in self.batch.members if other is not self]

    def follow(self, plan: Plan) -> Plan:
        """What of `plan` its next round can do: a pass that was queued ahead has no draft."""
        self.drafts, self.worth = plan.k > 0, plan.worth
        return Plan(reason=plan.reason, shared=True) if self in self.batch.queued else plan

    @property
    def length(self) -> int:
        """Tokens in its row."""
        return self.batch.rows.length(self.batch.members.index(self))

    def join(self, caches: Caches) -> None:
        """Take a row behind what `caches` hold."""
        self.batch.rows.join(caches.layers, caches.length)
        self.batch.members.append(self)

    def take_back(self, count: int) -> None:
        """The last `count` tokens that it fed were rejected."""
        self.batch.rows.take_back(self.batch.members.index(self), count)

    def leave(self, caches: Caches, length: int) -> None:
        """Give the row back, whose place the last one takes.

        `caches` then hold its first `length` tokens: all but some that it fed last.
        """
        members = self.batch.members
        row = members.index(self)
        self.batch.queued.pop(self, None)
        members[row] = members[-1]
        members.pop()
        self.batch.rows.leave(row, caches.layers, length)
        caches.was_fed(length)


class Batch:
    """The passes that `members` share, and their `rows`. Raises: Refused where a network's caches have no rows.

    `queued`: what its members have not judged yet of the last pass, which so many `sharers` share. `drafts` is that of
    the draft model, whose steps they share, too; None where each makes its draft alone.
    """

    def __init__(self, network: Network, takes_drafts: bool = False, draft: Network | None = None) -> None:
        """`takes_drafts`: passes may hold drafts. `draft`: one whose own passes may; `prove` tells both."""
        self._network, self.rows = network, Rows(Caches(network.module, network.kv).layers)
        self.members: list[Member] = []
        self.queued: dict[Member, Output] = {}
        self.sharers, self.takes_drafts = 0, takes_drafts
        self.drafts = Batch(draft) if draft else None

    def expect(self, count: int) -> None:
        """So many replies are about to share passes."""
        self.rows.expect(count)
        if self.drafts:
            self.drafts.expect(count)

    def answer(self, asks: Sequence[Ask]) -> dict[Ask, Exception | None]:
        """One pass for all of `asks`, which are of one kind: those that were in it, and what they failed by."""
        if parts := [ask for ask in asks if isinstance(ask, Part)]:
            return dict(self.run(parts).items())
        prompts = [ask for ask in asks if isinstance(ask, Prompt)]
        steps = [ask for ask in asks if isinstance(ask, DraftStep)]
        return dict.fromkeys(asks, failure(lambda: read_prompts(prompts) if prompts else self.draft(steps)))

    def draft(self, steps: Sequence[DraftStep]) -> None:
        """All `steps` in one pass of the draft model. A reply whose first one it is takes a row there."""
        drafts = self.drafts
        assert drafts is not None
        for step in steps:
            if step.model.row is None:
                step.model.join(Member(drafts))
        asked = {member: step for member in drafts.members for step in steps if step.model.row is member}
        drafts.queue({member: step.tokens for member, step in asked.items()})
        for member, step in asked.items():
            step.logits = drafts.queued.pop(member).logits

    def run(self, parts: Sequence[Part]) -> dict[Part, Exception | None]:
        """A pass over `parts`, queued with its verdicts, unless one is that was queued ahead. Where nobody drafts, the
        next one is queued ahead, on the tokens that the verdicts chose.

        Returns the parts that were in the pass, and what they failed by; those who came since are in the next one.
        """
        tokens = {part.member: part.tokens for part in parts}
        if not self.queued and (error := failure(lambda: self.queue(tokens))):
            return dict.fromkeys(parts, error)

        def judge(part: Part) -> None:
            del tokens[part.member]
            tokens[part.member] = part.judge(self.queued.pop(part.member), self.sharers)

        errors = {part: failure(partial(judge, part)) for part in parts if part.member in self.queued}
        going = [part for part, error in errors.items() if not error]
        ahead = all(part.member.shares and not part.member.drafts for part in going)
        if ahead and not self.queued and any(not part.ends for part in going):
            errors |= dict.fromkeys(going, failure(lambda: self.queue(tokens)))
        return errors

    def queue(self, tokens: Mapping[Member, mx.array]) -> None:
        """A pass over some tokens [T] of each of these members."""
        output = self._feed([tokens.get(member, NO_TOKENS) for member in self.members])
        rows = {member: row for row, member in enumerate(self.members) if member in tokens}
        self.queued = {member: output.of(row, tokens[member].size) for member, row in rows.items()}
        self.sharers = len(tokens)
        device.queue(output.logits)

    def read(self, unread: Sequence[mx.array]) -> None:
        """A pass over several tokens [T] of each member, computed."""
        self._feed(unread)
        mx.eval([layer.state for layer in self.rows.layers])

    def _feed(self, tokens: Sequence[mx.array]) -> Output:
        """So many tokens [T] to each row; those of shorter ones are none at their ends."""
        fed = [ids.size for ids in tokens]
        with self.rows.feeding(fed):
            # A pad of nothing costs, too: 8 of them 5 % of a pass of 0.25 s.
            padded = (mx.pad(ids, (0, lacking)) if (lacking := max(fed) - ids.size) else ids for ids in tokens)
            return self._network.forward_rows(mx.stack(list(padded)), self.rows.layers)


def failure(act: Callable[[], None]) -> Exception | None:
    """What `act` fails by: the replies that it is for hear of it, and the others go on."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - networks are others' code: what they raise cannot be listed
        return error
    return None


def read_prompts(prompts: Sequence[Prompt]) -> None:
    """Each is read, all in one pass: the weights are read once. All targets trim; shorter rows are padded behind.

    A single one is left to its reply.
    """
    if len(prompts) < 2:
        return
    batch = Batch(prompts[0].target.network)
    batch.rows.expect(len(prompts))
    unread = [prompt.target.ids(prompt.context[prompt.target.length : -1]) for prompt in prompts]
    for prompt in prompts:
        prompt.target.join(Member(batch))
    batch.read(unread)
    for prompt in prompts:
        prompt.target.leave(prompt.context, len(prompt.context) - 1)


# Tokens that conversations hold before they share so many passes; of more than READ the rest is invented.
TRIED_LENGTHS, TRIED_PASSES, READ = (251, 1, 198), 2, 5
# Of the rows of such passes, one after another: tokens that stay, and tokens that are taken back.
PLAIN = (((1, 0),) * len(TRIED_LENGTHS),) * TRIED_PASSES
DRAFTED = PLAIN[0], ((1, 2), (1, 0), (2, 1)), ((1, 1), (2, 0), (1, 2)), PLAIN[0]
# Tokens that no row feeds more of.
MOST_FED = 5
# By how much the longer of two rows is longer: a prime, so no block of columns begins in both where it does in one.
APART = 131
# Columns up to which a graph is asked about, and up to which rows are tried; so many changes at most are tried.
LONGEST, LONGEST_TRIED, MOST_CHANGES = 1 << 15, 1 << 13, 4


def prove(network: Network, draft: Network | None = None) -> Batch:
    """A batch of `network`, in which conversations score as each does alone. Raises: Refused where they do not.

    The steps of a `draft` are shared where passes may hold drafts, and its own could, too: it takes rejected ones back.
    """
    try:
        batch, most = Batch(network), _most_tokens(network)
        tried = [min(length, most) for length in TRIED_LENGTHS]
        # Shorter rows are padded, past the last position that was learned, where a row is nearly as long.
        bounded = network.positions is not None
        batch.takes_drafts = batch.rows.takes_back and not bounded and _scores_alike(network, batch, tried, DRAFTED)
        if not (batch.takes_drafts or _scores_alike(network, batch, tried)):
            raise ValueError("requests in one pass do not score as each alone")
        for length in _changes(network, most):
            batch.takes_drafts = False
            if length > LONGEST_TRIED or not _scores_alike(network, batch, (length, max(length - APART, 1))):
                raise ValueError(f"requests of {length} tokens in one pass do not score as each alone")
        with suppress(Refused):
            if draft and batch.takes_drafts and (drafts := prove(draft)).takes_drafts:
                batch.drafts = drafts
        device.clear_cache()
        return batch
    except (ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise Refused(f"{network.name}: {reason(error)}", "its requests take turns") from error


def _most_tokens(network: Network) -> int:
    """Tokens that a conversation may hold before the passes that are tried."""
    limits = (network.context_limit, network.positions, 2 * (network.recent or 0), LONGEST)
    return min(limit for limit in limits if limit) - MOST_FED


def _scores_alike(
    network: Network, batch: Batch, lengths: Sequence[int], passes: Sequence[Sequence[tuple[int, int]]] = PLAIN
) -> bool:
    """Whether conversations that hold so many tokens score in shared passes as alone."""
    models = [CachedModel(network) for _ in lengths]
    ids = min(50, models[0].vocab_size)
    contexts = [[(7 * row + at) % ids for at in range(n + MOST_FED)] for row, n in enumerate(lengths)]
    for model, context, length in zip(models, contexts, lengths, strict=True):
        model.catch_up(context[: min(length, READ) + 1])
        model.invent(context, length)
    shared, members = [model.copy(model.length) for model in models], [Member(batch) for _ in models]
    for model, member in zip(shared, members, strict=True):
        model.join(member)
    found: list[list[mx.array]] = [[] for _ in members]
    held = list(lengths)
    for parts in passes:
        fed = [
            context[at : at + kept] + context[:rejected]
            for context, at, (kept, rejected) in zip(contexts, held, parts, strict=False)
        ]
        batch.queue({member: mx.array(ids, dtype=mx.int32) for member, ids in zip(members, fed, strict=True)})
        for row, (member, (kept, rejected)) in enumerate(zip(members, parts, strict=False)):
            found[row].append(batch.queued.pop(member).logits[:kept])
            member.take_back(rejected)
            held[row] += kept
    mx.eval(found)
    for model, context, length in zip(shared, contexts, held, strict=True):
        model.leave(context, length)
    alone = [
        model.logits(context[: length + 1], model.ids(context[length + 1 : end]))
        for model, context, length, end in zip(models, contexts, lengths, held, strict=True)
    ]
    return all(same(mx.concatenate(rows), expected) for rows, expected in zip(found, alone, strict=True))


def _changes(network: Network, most: int) -> Iterator[int]:
    """Lengths of rows, each well beyond one at which layers begin to select, from the shortest on.

    Raises: ValueError where a block more has other operations: rounding may hide from numbers what large blocks do.
    """
    length, whole = min(READ, most), 1 << most.bit_length() - 1
    for _ in range(MOST_CHANGES):
        operations = _operations(network, length)
        if length == most or _operations(network, most) == operations:
            return
        if _operations(network, whole - 1) != _operations(network, whole - 2):
            raise ValueError("a layer cuts the columns of a pass into blocks, and each request begins within one")
        beyond = bisect_left(range(most), True, length, most, key=lambda at: _operations(network, at) != operations)
        length = min(2 * beyond + APART, most)
        yield length


def _operations(network: Network, length: int) -> list[str]:
    """The operations of a pass over a row that is so long and one of a single token, by name, its caches' windows open.

    Nothing is computed, unless a layer does so itself.
    """
    caches, rows = Caches(network.module, network.kv), Rows(Caches(network.module, network.kv).layers)
    network.forward(mx.zeros([1], mx.int32), caches)
    for _ in range(2):
        rows.join(caches.layers, 1)
    rows.stretch(length)
    graph = io.StringIO()
    with rows.feeding([1, 1]):
        mx.export_to_dot(graph, network.forward_rows(mx.zeros([2, 1], mx.int32), rows.layers).logits)
    mx.eval(network.module.parameters())  # a layer may have put what is not computed into its own
    return re.findall(r'label ="(\w+)"', graph.getvalue())
