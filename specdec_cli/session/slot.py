"""One conversation's caches. Target, draft and head belong together, and no other conversation writes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.heads.cached_head import CachedHead
from specdec_cli.engine.model import CachedModel

# Where caches cannot be trimmed, so much is read again at most, however far back a prompt changes.
SNAPSHOT_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Slot:
    """One conversation's caches: of the target and, where there is one, of the draft, which may be a head."""

    target: CachedModel
    draft: CachedModel | CachedHead | None = None

    @property
    def tokens(self) -> Sequence[int]:
        """The ids that the target holds."""
        return self.target.read

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that all conversations share."""
        return sum(part.weight_bytes for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all caches and their snapshots, as they are."""
        return sum(part.nbytes for part in self._parts)

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
        for part in self._parts:
            part.mark(part.own_ends(prompt, marks), snapshots)

    def copy(self, length: int) -> Slot:
        """Another conversation that begins with the first `length` tokens of this one, or with fewer.

        Arrays are copied when one of the two writes.
        """
        draft = self.draft and self.draft.copy(*self.draft.own_ends(self.tokens, [length]))
        return Slot(self.target.copy(length), draft)

    def contents(self) -> dict[str, Any]:
        """What another process needs to `restore` this conversation: ids, plain numbers and arrays."""
        return {"target": self.target.contents(), "draft": self.draft.contents() if self.draft else None}

    def restore(self, contents: Mapping[str, Any]) -> None:
        """Hold `contents` of a conversation over the same weights, and nothing else."""
        self.target.restore(contents["target"])
        if self.draft is not None:
            self.draft.restore(contents["draft"])

    def fresh(self) -> Slot:
        """Empty caches of another conversation, over the same weights."""
        return Slot(self.target.fresh(), self.draft.fresh() if self.draft else None)

    def forget(self) -> None:
        """Empty them."""
        for part in self._parts:
            part.forget()

    @property
    def _parts(self) -> list[CachedModel | CachedHead]:
        return [self.target] if self.draft is None else [self.target, self.draft]
