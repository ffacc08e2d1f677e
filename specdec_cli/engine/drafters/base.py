"""Who guesses the next tokens. A drafter may be wrong, slow or silent; it never changes the answer.

Letters: K drafted tokens, V the target's vocabulary size, D hidden size. A new drafter is one class and one line of
`kinds.DRAFTERS`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from specdec_cli.core.kinds import NONE
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.heads.cached_head import CachedHead
from specdec_cli.engine.model import CachedModel, Output
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


@dataclass(slots=True, eq=False)
class DraftStep:
    """A pass of the draft `model` over `tokens` [T], behind what it was fed. `logits` [T, V], once it ran; lazy."""

    model: CachedModel
    tokens: mx.array
    logits: mx.array | None = None

    def run(self) -> mx.array:
        """The last row [1, V]; it runs alone unless it did with others'."""
        if self.logits is None:
            self.logits = self.model.extend(self.tokens)
        return self.logits[-1:]


Proposal = Generator[int | DraftStep | None, None, Draft]
"""A draft in the making, which returns it. Yields the position that was read of the context, before each chunk that it
still has to read and after the last one; then None, once the first token is queued. The host may do something else
between two of these, or cancel by closing it. A step that it yields may be run together with others', before it goes
on."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts a drafter is made of. `rule` says how the draft draws.

    `target` is there for its vocabulary size and, on request, its hidden states, which a `draft` that is a head reads.
    """

    target: CachedModel
    draft: CachedModel | CachedHead | None
    rule: AcceptanceRule


def finished(proposal: Proposal) -> Draft:
    """The draft, whatever is to be read before it."""
    while True:
        try:
            next(proposal)
        except StopIteration as end:
            return cast(Draft, end.value)


class Drafter:
    """Proposes, commits, leaves, releases. A drafter needs `name` and `propose`; the others do nothing by default."""

    name: str = NONE.name

    def propose(self, context: Sequence[int], k: int) -> Proposal:
        """At most `k` tokens that may follow `context`, queued on the device; fewer or none is legal."""
        yield from ()
        return NOTHING

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        """The round is over: the verified `context`, whatever was proposed. Also called for each chunk of the prompt.

        `hidden` are the target's states [n, D] of its newest positions, if exposed: the last token of `context` was
        chosen from the last one, or, while a prompt is read, is the first token after it.
        """

    def leave(self) -> None:
        """The next draft is made alone: its caches leave the passes that its steps shared."""

    def release(self) -> None:
        """Give memory back: nothing will be proposed for long. A later proposal reads everything again."""


def read_together(target: CachedModel, drafter: Drafter | None, context: Sequence[int]) -> Iterator[Output]:
    """`target` reads all but the last token of `context`, a chunk a step, and `drafter` the states it asked for."""
    for output in target.prefill(context):
        if output.hidden is not None and drafter is not None:
            drafter.commit(context[: target.length + 1], output.hidden)
        yield output
