"""One conversation's caches. Target, draft and head belong together, and no other conversation writes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.heads.cached import CachedHead
from specdec_cli.engine.model import CachedModel

# Where caches cannot be trimmed, so much is read again at most, however far back a prompt changes.
SNAPSHOT_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Slot:
    """One conversation's caches: of the target and, where there is one, of the draft: a model or a head."""

    target: CachedModel
    draft: CachedModel | None = None
    head: CachedHead | None = None

    @property
    def tokens(self) -> Sequence[int]:
        """The ids that the target holds."""
        return self.target.read

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that all conversations share."""
        head = self.head.head.weight_bytes if self.head else 0
        return self.target.weight_bytes + (self.draft.weight_bytes if self.draft else 0) + head

    @property
    def nbytes(self) -> int:
        """Bytes of all caches and their snapshots, as they are."""
        return sum(part.nbytes for part in (self.target, self.draft, self.head) if part is not None)

    def shared(self, prompt: Sequence[int]) -> int:
        """Leading tokens of `prompt` that the target holds, whether or not it can return to their end."""
        return common_prefix(self.tokens, prompt)

    def reach(self, prompt: Sequence[int]) -> int:
        """Tokens of `prompt` that the target need not read again."""
        return self.target.reach(prompt)

    def mark(self, prompt: Sequence[int], ends: Sequence[int], snapshots: int) -> None:
        """Read `prompt` such that later ones which share only its first `ends` tokens need not read those again.

        Where caches cannot be trimmed that takes a snapshot at each end and every few thousand tokens; at most
        `snapshots` of them stay. Each is one token early: a head must read the state before the first other token.
        """
        every = range(SNAPSHOT_TOKENS, len(prompt), SNAPSHOT_TOKENS)
        marks = sorted({end - 1 for end in ends if end > 1}.union(every))
        for model in (self.target, self.draft):
            if model is not None:
                model.mark(marks, snapshots)

    def copy(self, length: int) -> Slot:
        """Another conversation that begins with the first `length` tokens of this one, or with fewer.

        Arrays are copied when one of the two writes.
        """
        draft, head = self.draft, self.head
        return Slot(self.target.copy(length), draft.copy(length) if draft else None, head.copy() if head else None)

    @property
    def places(self) -> tuple[int, tuple[int, ...]]:
        """(the least length from which on the target returns to every length, lengths below it that it returns to)."""
        return self.target.places

    def stored(self) -> dict[str, Any]:
        """All of it, for `engine.stored`; nothing may be read while this is in use."""
        draft = self.draft.stored() if self.draft is not None and self.draft.read else None
        head = self.head.stored() if self.head is not None and self.head.length else None
        return {"target": self.target.stored(), "draft": draft, "head": head}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Hold what was `stored`. Raises: Unusable for what is of other models."""
        self.target.restore(values["target"])
        if self.draft is not None and values["draft"] is not None:
            self.draft.restore(values["draft"])
        if self.head is not None and values["head"] is not None:
            self.head.restore(values["head"])

    def forget(self) -> None:
        """Empty them."""
        for part in (self.target, self.draft, self.head):
            if part is not None:
                part.forget()
