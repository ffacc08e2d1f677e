"""One target pass for several conversations: a plain token of each, from one reading of the weights.

A plain pass is bound by memory traffic, so a few rows more cost little. Only the network runs on all rows at once: each
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
    whether it is `beside` others, so that prompts may be read in one pass. While it has a row, `token` [1] is what it
    feeds next; `sharers` replies shared its last pass, after which the reply `ends` at the latest if that says so.
    `history` tells what it costs alone.
    """

    def __init__(self, batch: Batch | None = None) -> None:
        """`batch` None: it shares nothing."""
        self.batch, self.wanted, self.beside = batch, False, False
        self.prompt: Prompt | None = None
        self.history: History | None = None
        self.token = NO_TOKENS
        self.sharers, self.ends = 0, False
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
        self.token = mx.array([token], dtype=mx.int32)

    @property
    def queued(self) -> bool:
        """Whether a pass was queued whose output is not taken yet."""
        return self._output is not None

    def put(self, output: Output, sharers: int) -> None:
        """Its row of a pass."""
        self._output, self.sharers = output, sharers

    def take(self) -> Output:
        """Its row of the last pass, once."""
        assert self._output is not None, "no pass was queued"
        output, self._output = self._output, None
        return output

    def leave(self, caches: Caches, length: int) -> None:
        """Give the row back; `caches` then hold its first `length` tokens: all that were fed, or one less."""
        assert self.batch is not None
        self.batch.leave(self, caches, length)
        self._output = None


class Batch:
    """The rows of all seats that have one. Raises: Refused where a network's caches have no rows."""

    def __init__(self, network: Network) -> None:
        self._network, self._rows = network, Rows(Caches(network.module, network.kv).layers)
        self._seats: list[Seat] = []

    def __len__(self) -> int:
        return len(self._seats)

    def expect(self, count: int) -> None:
        """So many seats are about to have a row."""
        self._rows.expect(count)

    def run(self) -> None:
        """Queue a pass over the tokens of all seats, unless one is queued whose output was not taken."""
        if any(seat.queued for seat in self._seats):
            return
        tokens = mx.stack([seat.token for seat in self._seats])
        with self._rows.feeding():
            output = self._network.forward_rows(tokens, self._rows.layers)
        for row, seat in enumerate(self._seats):
            seat.put(output.row(row), len(self._seats))
        device.queue(output.logits)

    def read(self, unread: Sequence[mx.array]) -> None:
        """A pass over several tokens [T] of each seat, computed; those of shorter rows are none at their ends."""
        longest = max(ids.size for ids in unread)
        tokens = mx.stack([mx.pad(ids, (0, longest - ids.size)) for ids in unread])
        with self._rows.feeding(longest):
            self._network.forward_rows(tokens, self._rows.layers)
        mx.eval([layer.state for layer in self._rows.layers])

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
