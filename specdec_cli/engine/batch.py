"""One target pass for several conversations: a token of each and its draft behind it, from one reading of the weights.

A pass is bound by memory traffic, so a few rows more cost little. Only the network runs on all rows at once: each
keeps its rule, noise, constraint and penalties. Its logits are those that it would have alone, up to rounding: a
device may sum in another order where a pass has more rows, so a near-tie can flip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.cache.rows import Rows
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.model import CachedModel, Network, Output
from specdec_cli.engine.planning.history import History
from specdec_cli.engine.planning.policy import Plan, Worth

# Tokens up to which a pass over a prompt is bound by reading the weights, so that a pass for several saves time.
MOST_BESIDE = 256


@dataclass(frozen=True, slots=True)
class Waiting:
    """Yielded twice a shared pass: until it is queued, then until every verdict is."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What `target` is to read: all but the last token of `context`, of which it holds a part."""

    target: CachedModel
    context: Sequence[int]

    @property
    def unread(self) -> int:
        """Tokens."""
        return len(self.context) - 1 - self.target.length


class Seat:
    """A reply's place in the passes that are shared.

    Whoever runs the replies says whether it is `wanted`: from its next round on it is to share them, or no longer; and
    whether it is `beside` others, so that prompts may be read in one pass. With a row, it feeds `tokens` [K + 1] next:
    one that was decoded, and a draft of K behind it; or none, while it drafts. `sharers` replies shared
    its last pass, after which the reply `ends` at the latest if that says so. Its next round `drafts`, or would if its
    pass were not queued; `worth` tells the others what for. `history` tells what it costs alone.
    """

    def __init__(self, batch: Batch | None = None) -> None:
        """`batch` None: it shares nothing."""
        self.batch, self.wanted, self.beside = batch, False, False
        self.prompt: Prompt | None = None
        self.history: History | None = None
        self.tokens, self.worth = NO_TOKENS, Worth()
        self.sharers, self.ends, self.drafts = 0, False, False
        self._output: Output | None = None

    def awaits_reading(self, target: CachedModel, context: Sequence[int]) -> bool:
        """Whether the reply waits until `target` has read all but the last token of `context` beside others: `prompt`.

        Where a head reads its states, and where a rollback needs snapshots, a prompt is read alone.
        """
        prompt = Prompt(target, context)
        alone = target.network.hidden.is_exposed or not target.trims or len(context) > MOST_BESIDE
        self.prompt = prompt if self.beside and prompt.unread > 0 and not alone else None
        return self.prompt is not None

    def join(self, caches: Caches, token: int) -> None:
        """Take a row behind what `caches` hold; `token` is fed first."""
        assert self.batch is not None
        self.batch.join(self, caches)
        if not self.drafts:
            self.tokens = mx.array([token], dtype=mx.int32)

    @property
    def queued(self) -> bool:
        """Whether a pass was queued whose output is not taken yet."""
        return self._output is not None

    @property
    def may_draft(self) -> bool:
        """Whether its part of a pass may hold a draft."""
        return self.batch is not None and self.batch.takes_drafts

    @property
    def others(self) -> list[Worth]:
        """What drafts are worth to those who have a row beside it."""
        return [] if self.batch is None else self.batch.worths_beside(self)

    def follow(self, plan: Plan) -> Plan:
        """What of `plan` its next round can do: a pass that was queued ahead has no draft.

        Until its draft is made, passes of the others go on without it.
        """
        self.drafts, self.worth = plan.k > 0, plan.worth
        if self.drafts and self.queued:
            return Plan(reason=plan.reason, shared=True)
        self.tokens = NO_TOKENS if self.drafts else self.tokens
        return plan

    def put(self, output: Output, sharers: int) -> None:
        """Its row of a pass."""
        self._output, self.sharers = output, sharers

    def take(self) -> Output:
        """Its row of the last pass, once."""
        assert self._output is not None, "no pass was queued"
        output, self._output = self._output, None
        return output

    def take_back(self, count: int) -> None:
        """The last `count` tokens of its part of the last pass are none any more."""
        assert self.batch is not None
        self.batch.take_back(self, count)

    def leave(self, caches: Caches, length: int) -> None:
        """Give the row back; `caches` then hold its first `length` tokens: all but some of the last pass."""
        assert self.batch is not None
        self.batch.leave(self, caches, length)
        self._output = None


class Batch:
    """The rows of all seats that have one. Raises: Refused where a network's caches have no rows."""

    def __init__(self, network: Network, takes_drafts: bool = False) -> None:
        """`takes_drafts`: passes may hold drafts."""
        self._network, self._rows = network, Rows(Caches(network.module, network.kv).layers)
        self._seats: list[Seat] = []
        self.takes_drafts = takes_drafts

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def takes_back(self) -> bool:
        """Whether several tokens of a pass can be taken back."""
        return self._rows.takes_back

    def worths_beside(self, seat: Seat) -> list[Worth]:
        """What drafts are worth to all other seats."""
        return [other.worth for other in self._seats if other is not seat]

    def expect(self, count: int) -> None:
        """So many seats are about to have a row."""
        self._rows.expect(count)

    def run(self) -> None:
        """Queue a pass over the tokens of all seats that have some, unless one is queued whose output was not taken."""
        feeding = [(row, seat) for row, seat in enumerate(self._seats) if seat.tokens.size]
        if any(seat.queued for seat in self._seats) or not feeding:
            return
        output = self._feed([seat.tokens for seat in self._seats])
        for row, seat in feeding:
            seat.put(output.of(row, seat.tokens.size), len(feeding))
        device.queue(output.logits)

    def read(self, unread: Sequence[mx.array]) -> None:
        """A pass over several tokens [T] of each seat, computed."""
        self._feed(unread)
        mx.eval([layer.state for layer in self._rows.layers])

    def _feed(self, tokens: Sequence[mx.array]) -> Output:
        """So many tokens [T] to each row; those of shorter ones are none at their ends."""
        fed = [ids.size for ids in tokens]
        with self._rows.feeding(fed):
            # A pad of nothing costs, too: 8 of them 5 % of a pass of 0.25 s.
            padded = (mx.pad(ids, (0, lacking)) if (lacking := max(fed) - ids.size) else ids for ids in tokens)
            return self._network.forward_rows(mx.stack(list(padded)), self._rows.layers)

    def take_back(self, seat: Seat, count: int) -> None:
        """The last `count` tokens of the part that `seat` had of the last pass are none any more."""
        self._rows.take_back(self._seats.index(seat), count)

    def join(self, seat: Seat, caches: Caches) -> None:
        """A row for `seat`."""
        self._rows.join(caches.layers, caches.length)
        self._seats.append(seat)

    def leave(self, seat: Seat, caches: Caches, length: int) -> None:
        """The row of `seat` goes, and the last one takes its place."""
        row = self._seats.index(seat)
        self._seats[row] = self._seats[-1]
        self._seats.pop()
        self._rows.leave(row, caches.layers, length)
        caches.was_fed(length)


def read_side_by_side(prompts: Sequence[Prompt]) -> None:
    """Each is read, all in one pass: the weights are read once. All targets trim; shorter rows are padded behind."""
    batch = Batch(prompts[0].target.network)
    batch.expect(len(prompts))
    unread = [prompt.target.ids(prompt.context[prompt.target.length : -1]) for prompt in prompts]
    for prompt in prompts:
        prompt.target.join(Seat(batch), prompt.context)
    batch.read(unread)
    for prompt in prompts:
        prompt.target.leave(prompt.context, len(prompt.context) - 1)
