"""The conversations whose caches are kept: a prompt is read from where it differs from what one of them has read.

They are found by token ids: the longest common prefix wins. One that another client goes on with is copied, never taken
away, and one that is in use is never shared. All sizes in bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from specdec_cli.apps.serve.job import Job
from specdec_cli.engine.pipeline import Clock
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.session import Session
from specdec_cli.session.slot import Slot

# Templates end a prompt with the opening of an answer, and may write it otherwise once the answer is there.
OPENING_TOKENS = 8
# A shorter prefix is not worth a copy.
SHORTEST_COPY = 16


@dataclass(slots=True, eq=False)
class CachedConversation:
    """One slot of caches, its session and that one's clock.

    `goes_on_at`: a prompt that shares so many tokens continues this conversation; others only begin like it. It was
    `used` so often: one that nobody went on with is kept on disk only with the models.
    """

    session: Session
    watch: Stopwatch
    conversation_id: str | None = None
    nbytes: int = 0
    used_at: float = 0.0
    busy: bool = False
    goes_on_at: int = 0
    used: int = 0

    @property
    def slot(self) -> Slot:
        return self.session.slot

    @property
    def length(self) -> int:
        """Tokens that its target holds."""
        return len(self.slot.tokens)


class Conversations:
    """At most `most` conversations in `budget_bytes`, those in use included; the least recently used go first.

    `begin` makes one of a slot, None being a new one. A slot keeps so many `snapshots`.
    """

    def __init__(
        self,
        begin: Callable[[Slot | None], CachedConversation],
        budget_bytes: int,
        most: int,
        snapshots: int,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._begin, self._budget_bytes, self._most = begin, budget_bytes, most
        self._snapshots, self._clock = snapshots, clock
        self._kept: list[CachedConversation] = []

    def __iter__(self) -> Iterator[CachedConversation]:
        return iter(tuple(self._kept))

    @property
    def nbytes(self) -> int:
        """Bytes of all of them, as they were when last used."""
        return sum(kept.nbytes for kept in self._kept)

    def take(self, job: Job) -> CachedConversation:
        """The one in which `job` has the least to read, in use from now on."""
        prompt, identity, ends = list(job.prompt), job.conversation_id, job.reusable_prefixes
        near, reach = self._nearest(prompt, identity)
        if near and not near.busy and self._continues(near, prompt):
            found = near
        else:
            found = self._begin(near.slot.copy(reach) if near and reach >= SHORTEST_COPY else None)
            found.nbytes = found.slot.nbytes
            self._kept.append(found)
        found.busy, found.used_at, found.used = True, self._clock(), found.used + 1
        found.conversation_id = identity or found.conversation_id
        found.goes_on_at = ends[-1] if len(ends) > 1 else ((ends[0] if ends else 0) + len(prompt)) // 2
        found.slot.mark(prompt, ends, self._snapshots)
        self.fit(self._budget_bytes)
        return found

    def give_back(self, kept: CachedConversation) -> None:
        """It is no longer in use."""
        kept.busy, kept.nbytes, kept.used_at = False, kept.slot.nbytes, self._clock()
        if kept.used > 1:
            kept.session.keep()
        self.fit(self._budget_bytes)

    def discard(self, kept: CachedConversation) -> None:
        """It cannot be used again."""
        self._kept.remove(kept)

    def fit(self, budget_bytes: int) -> None:
        """Drop what nobody uses, the newest last, until the rest is within the budget."""
        idle = sorted((kept for kept in self._kept if not kept.busy), key=lambda kept: kept.used_at)
        while idle and (self.nbytes > budget_bytes or len(self._kept) > self._most):
            gone = idle.pop(0)
            self._kept.remove(gone)
            if gone.used > 1:
                gone.session.keep(ends=True)

    def keep(self, most_bytes: int) -> None:
        """Have those that were used last kept on disk, `most_bytes` of them: the models leave the memory."""
        by_use = sorted(self._kept, key=lambda kept: kept.used_at)
        sums = list(accumulate(kept.nbytes for kept in reversed(by_use)))
        for kept in by_use[len(by_use) - sum(one <= most_bytes for one in sums) :]:
            kept.session.keep(ends=True)

    def _nearest(self, prompt: Sequence[int], identity: str | None) -> tuple[CachedConversation | None, int]:
        """Who has read the most of `prompt` that can be returned to; between equals the one of that id, idle, new."""

        def rank(kept: CachedConversation) -> tuple[int, bool, bool, float]:
            same = identity is not None and kept.conversation_id == identity
            return kept.slot.reach(prompt), same, not kept.busy, kept.used_at

        best = max(self._kept, key=rank, default=None)
        reach = best.slot.reach(prompt) if best else 0
        return (best, reach) if reach else (None, 0)

    def _continues(self, kept: CachedConversation, prompt: Sequence[int]) -> bool:
        """Whether `prompt` goes on with this conversation, whose last answer it may leave out or change."""
        return kept.slot.shared(prompt) >= kept.goes_on_at - OPENING_TOKENS
