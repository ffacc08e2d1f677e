"""Who guesses the next tokens. A drafter may be wrong, slow or silent; it never changes the answer.

Letters: K drafted tokens, V the target's vocabulary size, D hidden size. A new drafter is one class and one line of
`kinds.DRAFTERS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from specdec_cli.core.events import Round
from specdec_cli.core.kinds import NONE
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.adaptive import DraftLength
from specdec_cli.engine.draft_length.rates import LookupAcceptance
from specdec_cli.engine.heads.cached_head import CachedHead
from specdec_cli.engine.model import CachedModel, Output
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts a drafter is made of.

    `length` chooses K; `lookups` holds this session's acceptance rates of lookups. `rule` says how the draft draws.
    What is `predicted` to follow the `prompt` is drafted from by lookup. `target` is there for its vocabulary size and,
    on request, its hidden states, which a `draft` that is a head reads.
    """

    target: CachedModel
    draft: CachedModel | CachedHead | None
    rule: AcceptanceRule
    length: DraftLength
    lookups: LookupAcceptance = field(default_factory=LookupAcceptance)
    prompt: Sequence[int] = ()
    predicted: Sequence[int] = ()


class Drafter:
    """A drafter needs `name` and `propose`; every other method has a default that does nothing."""

    name: str = NONE.name

    def propose(self, context: Sequence[int], k: int) -> Draft:
        """At most `k` tokens that may follow `context`, queued on the device; fewer or none is legal."""
        return NOTHING

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        """The round is over: the verified `context`, whatever was proposed. Also called for each chunk of the prompt.

        `hidden` are the target's states [n, D] of its newest positions, if exposed: the last token of `context` was
        chosen from the last one, or, while a prompt is read, is the first token after it.
        """

    def keeps(self, context: Sequence[int]) -> int:
        """Before the target reads `context`: the leading positions whose hidden states are not needed again."""
        return len(context)

    def ready(self, context: Sequence[int]) -> bool:
        """Whether `propose` may come at once; else `prefill` reads `context` first, in interruptible steps."""
        return True

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        """Read `context` ahead of a proposal, a chunk a step; yields the position reached, the first one as well."""
        yield from ()

    def start(self, context: Sequence[int]) -> None:
        """Queue the first step of the next proposal, so that the device works while the caller prints."""

    def release(self) -> None:
        """Give memory back: nothing will be proposed for long. A later proposal reads everything again."""

    def length(self, given: DraftLength) -> DraftLength:
        """Who chooses K: `given`, unless the drafter chooses itself."""
        return given


class DrafterAround(Drafter):
    """Drafter and draft length in one, around another of each: what a subclass does not decide, those do."""

    def __init__(self, drafter: Drafter, length: DraftLength) -> None:
        self.name = drafter.name
        self._drafter, self._length = drafter, length

    def length(self, given: DraftLength) -> DraftLength:
        return self

    @property
    def released(self) -> bool:
        return self._length.released

    @property
    def reason(self) -> str:
        return self._length.reason

    def next(self) -> int:
        return self._length.next()

    def lookup_k(self, rates: list[float]) -> int:
        return self._length.lookup_k(rates)

    def observe(self, round: Round) -> None:
        self._length.observe(round)

    def keeps(self, context: Sequence[int]) -> int:
        return self._drafter.keeps(context)

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        yield from self._drafter.prefill(context)

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        self._drafter.commit(context, hidden)

    def release(self) -> None:
        self._drafter.release()


def read_together(target: CachedModel, drafter: Drafter, context: Sequence[int]) -> Iterator[Output]:
    """`target` reads all but the last token of `context`, a chunk a step, and `drafter` the states it asked for."""
    for output in target.prefill(context):
        if output.hidden is not None:
            drafter.commit(context[: target.length + 1], output.hidden)
        yield output


def no_drafter(parts: Parts) -> Drafter:
    """Plain decoding: never proposes."""
    return Drafter()
