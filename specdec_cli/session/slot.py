"""One conversation's caches. Target, draft and head belong together, and no other conversation writes to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.engine.array_file import ArrayFile, Unusable
from specdec_cli.engine.array_tree import ArrayNames, NamedArrays, Tree
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.heads.cached import CachedHead
from specdec_cli.engine.heads.held import held_of as head_of
from specdec_cli.engine.heads.held import tree_of as head_tree
from specdec_cli.engine.model import CachedModel

# Where caches cannot be trimmed, so much is read again at most, however far back a prompt changes.
SNAPSHOT_TOKENS = 4096
# Names of ids in a file.
TOKENS, DRAFT_TOKENS, HEAD_TOKENS = "tokens", "draft tokens", "head tokens"


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

    def stored(self, names: ArrayNames) -> Tree:
        """All of it as JSON, whose arrays get `names`; nothing may be read meanwhile. Raises: Unusable."""
        tree: Tree = {"target": self.target.stored(names), "draft": None, "head": None}
        names.keep_ids(TOKENS, self.tokens)
        if self.draft is not None and self.draft.read:
            tree["draft"] = self.draft.stored(names)
            names.keep_ids(DRAFT_TOKENS, self.draft.read)
        if self.head is not None and self.head.length:
            held = self.head.held()
            tree["head"] = head_tree(held, names)
            names.keep_ids(HEAD_TOKENS, held.context)
        return tree

    def restore(self, tree: Any, file: ArrayFile) -> None:
        """Hold what was `stored` in `file`. Raises: Unusable, OSError, and is empty then."""
        arrays = NamedArrays(file.array)
        try:
            if not isinstance(tree, dict) or not {"target", "draft", "head"} <= tree.keys():
                raise Unusable("it holds no conversation")
            self.target.restore(file.ids(TOKENS), tree["target"], arrays)
            if self.draft is not None and tree["draft"] is not None:
                self.draft.restore(file.ids(DRAFT_TOKENS), tree["draft"], arrays)
            if self.head is not None and tree["head"] is not None:
                size = self.head.head.output_head.hidden_size
                self.head.take_up(head_of(tree["head"], file.ids(HEAD_TOKENS), arrays, size))
        except (Unusable, OSError):
            self.forget()
            raise

    def forget(self) -> None:
        """Empty them."""
        for part in (self.target, self.draft, self.head):
            if part is not None:
                part.forget()
