"""The conversations that are kept. Law: a prompt is read from where it differs from what some conversation has read.

Slots are found by token ids: the longest common prefix wins. One that belongs to another conversation is copied, never
taken away, and one that is in use is never shared. All sizes in bytes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from specdec_cli.engine.pipeline import Clock
from specdec_cli.serve.conversation_file import Facts
from specdec_cli.serve.folder import Folder
from specdec_cli.serve.job import Job
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.session import Session
from specdec_cli.session.slot import Slot

# Templates end a prompt with the opening of an answer, and may write it otherwise once the answer is there.
OPENING_TOKENS = 8
# A shorter prefix is not worth a copy.
SHORTEST_COPY = 16


@dataclass(slots=True, eq=False)
class Kept:
    """One slot, its session and that one's clock.

    `system_tokens` is the prefix that other conversations probably begin with.
    `goes_on_at`: a prompt that shares so many tokens continues this conversation; others only begin like it.
    `prefix_only`: nothing but such a prefix is left. `name` is that of its file, `written` whether that holds it all.
    """

    session: Session
    watch: Stopwatch
    key: str | None = None
    nbytes: int = 0
    used_at: float = 0.0
    busy: bool = False
    system_tokens: int = 0
    goes_on_at: int = 0
    prefix_only: bool = False
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    written: bool = False

    @property
    def facts(self) -> Facts:
        """What its file says of it."""
        return Facts(self.key, self.system_tokens, self.goes_on_at, self.prefix_only)

    @property
    def slot(self) -> Slot:
        return self.session.slot

    @property
    def length(self) -> int:
        """Tokens that its target holds."""
        return len(self.slot.tokens)


class Slots:
    """At most `most` conversations in `budget_bytes`, those in use included; the least recently used go first."""

    def __init__(
        self,
        open: Callable[[Slot | None], Kept],
        budget_bytes: int,
        most: int,
        snapshots: int,
        clock: Clock = time.perf_counter,
        folder: Folder | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """`open` begins a session in a slot, None being a new one. A slot keeps so many `snapshots`.

        What is no longer in memory may come from `folder`, an array a step with a `meanwhile` after each, which may
        give slots back.
        """
        self._open, self._budget_bytes, self._most = open, budget_bytes, most
        self._snapshots, self._clock, self._folder, self._meanwhile = snapshots, clock, folder, meanwhile
        self._kept: list[Kept] = []

    def __iter__(self) -> Iterator[Kept]:
        return iter(tuple(self._kept))

    @property
    def nbytes(self) -> int:
        """Bytes of all of them, as they were when last used."""
        return sum(kept.nbytes for kept in self._kept)

    def take(self, job: Job) -> Kept:
        """The slot in which `job` has the least to read, in use from now on."""
        prompt = list(job.prompt)
        read = self._read_back(prompt, job.key, self._nearest(prompt, job.key)[1]) if self._folder else None
        found, reach = (read, read.slot.reach(prompt)) if read else self._nearest(prompt, job.key)
        if found is None:
            found = self._added(None)
        elif found.busy or not self._continues(found, prompt, job.key):
            found = self._added(found.slot.copy(reach) if reach >= SHORTEST_COPY else None)
            if read is not None:
                self._kept.remove(read)  # its file goes on
        found.busy, found.prefix_only, found.used_at, found.key = True, False, self._clock(), job.key or found.key
        found.written = False
        found.system_tokens = job.ends[0] if job.ends else 0
        found.goes_on_at = job.ends[-1] if len(job.ends) > 1 else (found.system_tokens + len(prompt)) // 2
        found.slot.mark(prompt, job.ends, self._snapshots)
        self.fit(self._budget_bytes)
        return found

    def give_back(self, kept: Kept) -> None:
        """It is no longer in use."""
        kept.busy, kept.nbytes, kept.used_at = False, kept.slot.nbytes, self._clock()
        self.fit(self._budget_bytes)

    def discard(self, kept: Kept) -> None:
        """It cannot be used again."""
        self._kept.remove(kept)

    def fit(self, budget_bytes: int) -> None:
        """Drop what nobody uses until the rest is within the budget: conversations, then prefixes, the newest last."""
        while self.nbytes > budget_bytes or self._conversations() > self._most:
            idle = [kept for kept in self._kept if not kept.busy]
            if not idle:
                return
            newest = max(idle, key=lambda kept: kept.used_at)
            self._drop(min(idle, key=lambda kept: (kept is newest, kept.prefix_only, kept.used_at)))

    def _conversations(self) -> int:
        return sum(not kept.prefix_only for kept in self._kept)

    def _nearest(self, prompt: Sequence[int], key: str | None) -> tuple[Kept | None, int]:
        """Who has read the most of `prompt` that can be returned to; between equals the one of that key, idle, new."""
        reached = [(kept.slot.reach(prompt), kept) for kept in self._kept]
        same = [(reach, key is not None and kept.key == key, not kept.busy, kept.used_at) for reach, kept in reached]
        best = max(range(len(same)), key=same.__getitem__, default=None)
        if best is None or not reached[best][0]:
            return None, 0
        return reached[best][1], reached[best][0]

    def _read_back(self, prompt: Sequence[int], key: str | None, reach: int) -> Kept | None:
        """A conversation of the folder that has more of `prompt`, now in memory; None if none has, or has no room."""
        while self._folder and (entry := self._folder.nearest(prompt, key, reach, self._budget_bytes)):
            self.fit(self._budget_bytes - entry.file.nbytes)
            if self.nbytes + entry.file.nbytes > self._budget_bytes:
                return None
            kept = self._open(None)
            if self._folder.restore(entry, kept.slot, self._meanwhile):
                kept.key, kept.prefix_only = entry.facts.key, entry.facts.prefix_only
                kept.system_tokens, kept.goes_on_at = entry.facts.system_tokens, entry.facts.goes_on_at
                if all(self._folder.name_of(entry) != other.name for other in self._kept):
                    kept.name = self._folder.name_of(entry)
                kept.nbytes, kept.used_at = kept.slot.nbytes, self._clock()
                self._kept.append(kept)
                return kept
        return None

    def _continues(self, kept: Kept, prompt: Sequence[int], key: str | None) -> bool:
        """Whether `prompt` goes on with this conversation, whose last answer it may leave out or change."""
        if kept.prefix_only or (key is not None and kept.key == key):
            return True
        return kept.slot.shared(prompt) >= kept.goes_on_at - OPENING_TOKENS

    def _added(self, slot: Slot | None) -> Kept:
        kept = self._open(slot)
        kept.nbytes, kept.used_at = kept.slot.nbytes, self._clock()
        self._kept.append(kept)
        return kept

    def _drop(self, kept: Kept) -> None:
        """Leave its system prefix, if it has one that nobody else holds."""
        self._kept.remove(kept)
        length = kept.system_tokens
        prefix = list(kept.slot.tokens[:length])
        if kept.prefix_only or not prefix or any(list(other.slot.tokens[:length]) == prefix for other in self._kept):
            return
        slot = kept.slot.copy(length)
        if slot.tokens:
            left = self._added(slot)
            left.used_at, left.prefix_only, left.system_tokens = kept.used_at, True, length
