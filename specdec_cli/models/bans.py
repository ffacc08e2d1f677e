"""What one answer may not say: a word anywhere, or an end before it is long enough; beside its constraint, if any.

A token is banned by the bytes that it adds, so that a word cannot be spelled by other tokens either. Masks are those of
a constraint: packed bits, one row a position, exact also for drafts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from specdec_cli.models.grammar import EVERYTHING, WORD_BITS, Matcher, Row


class Bans:
    """Where an answer stands behind the tokens that `advance` was given. `inner` is its constraint."""

    def __init__(
        self,
        tokens: Mapping[int, bytes],
        vocab_size: int,
        words: Sequence[bytes] = (),
        ends: frozenset[int] = frozenset(),
        least: int = 0,
        inner: Matcher | None = None,
    ) -> None:
        """No word of `words` is said, and no token of `ends` among the first `least` tokens."""
        self._tokens, self._words, self._inner = tokens, words, inner
        self._least, self._vocab_size = least, vocab_size
        self._ends = self._packed(ends)
        self._tail, self._said = b"", 0
        self._keep = max(map(len, words), default=1) - 1
        self._banned = lru_cache(maxsize=256)(self._find_banned)

    @property
    def complete(self) -> bool | None:
        """Whether the answer has its constraint's shape; None without one."""
        return None if self._inner is None else self._inner.complete

    def forced(self) -> list[int]:
        """As the constraint's."""
        return [] if self._inner is None else self._inner.forced()

    def legal(self, draft: Sequence[int]) -> int:
        """How many of the `draft` tokens may follow."""
        many = len(draft) if self._inner is None else self._inner.legal(draft)
        rows = self.masks(draft[:many])
        legal = (bool(rows[at, token // WORD_BITS] >> (token % WORD_BITS) & 1) for at, token in enumerate(draft[:many]))
        return next((at for at, may in enumerate(legal) if not may), many)

    def masks(self, draft: Sequence[int]) -> Row:
        """[K + 1, W] packed bits, as a constraint's; one that would allow nothing is the constraint's own."""
        width = -(-self._vocab_size // WORD_BITS)
        rows = np.full((len(draft) + 1, width), EVERYTHING) if self._inner is None else self._inner.masks(draft).copy()
        tail = self._tail
        for at in range(len(rows)):
            left = rows[at]
            for word in self._words:
                left = left & ~self._banned(word, _begun(word, tail))
            if self._said + at < self._least:
                left = left & ~self._ends
            if left.any():
                rows[at] = left
            if at < len(draft):
                tail = self._after(tail, draft[at])
        return rows

    def advance(self, emitted: Sequence[int]) -> None:
        """These tokens are the answer's next ones."""
        for token in emitted:
            self._tail = self._after(self._tail, token)
        self._said += len(emitted)
        if self._inner is not None:
            self._inner.advance(emitted)

    def _after(self, tail: bytes, token: int) -> bytes:
        """The last bytes of what was said, as many as a word may begin with."""
        return (tail + self._tokens.get(token, b""))[-self._keep :] if self._keep else b""

    def _find_banned(self, word: bytes, begun: int) -> Row:
        """[W]: the tokens that would complete `word`, of which the first `begun` bytes were said."""
        said = word[:begun]
        return self._packed(token for token, spelled in self._tokens.items() if word in said + spelled)

    def _packed(self, tokens: Iterable[int]) -> Row:
        """[W]: a bit for each of `tokens` that has a row."""
        bits = np.zeros(-(-self._vocab_size // WORD_BITS), dtype=np.uint32)
        for token in tokens:
            if token < self._vocab_size:
                bits[token // WORD_BITS] |= np.uint32(1 << token % WORD_BITS)
        return bits.view(np.int32)


def _begun(word: bytes, tail: bytes) -> int:
    """How many bytes of `word`, at most, `tail` ends with."""
    return next((many for many in range(min(len(word) - 1, len(tail)), 0, -1) if tail.endswith(word[:many])), 0)
