"""Masks along the drafts of one answer. Law: every row is computed once, however often a draft is asked for.

A draft model asks after each of its tokens, the verification for all of them. Near the end of a text of bounded length
a row of a 150k vocabulary costs 1 to 2 ms. So a big vocabulary's rows are computed in a thread of their own, from when
the tokens are known: the library lets Python go on meanwhile. A matcher and its copies wait for each other (they share
one lexer), so that thread has a matcher of its own. Letters: K drafted tokens, V vocabulary size, W = ceil(V / 32).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import takewhile
from typing import Any

import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import fill_next_token_bitmask

from specdec_cli.errors import SpecdecError

WORD_BITS = 32
# Below this a row costs less than waking a thread.
LEAST_VOCAB = 16_384
Row = np.ndarray[Any, np.dtype[np.int32]]


class Scout:
    """Goes ahead of an answer along its drafts."""

    def __init__(self, make: Callable[[], LLMatcher], vocab_size: int) -> None:
        """`make` is called once, at the first question: a matcher that stands where the answer begins."""
        self._make, self._words = make, -(-vocab_size // WORD_BITS)
        self._taken: list[int] = []
        # Behind the first i of the tokens taken: a matcher, and its row once that was asked for.
        self._matchers: list[LLMatcher] = []
        self._rows: list[Row | None] = []

    def begin(self, draft: Sequence[int]) -> None:
        """`rows` of these tokens will be asked for."""

    def rows(self, draft: Sequence[int]) -> list[Row]:
        """Rows [W] after the first i of the `draft` tokens [K]; K + 1, or those up to the first illegal token."""
        return [self._row(place) for place in range(self._follow(draft) + 1)]

    def advance(self, emitted: Sequence[int]) -> None:
        """The answer stands behind these tokens now, which are legal; rows beyond them are kept."""
        self._follow(emitted)
        for known in (self._taken, self._matchers, self._rows):
            del known[: len(emitted)]

    def _follow(self, draft: Sequence[int]) -> int:
        """Take the `draft` tokens up to the first illegal one; returns how many were legal."""
        if not self._matchers:
            self._place(self._make())
        both = takewhile(lambda pair: pair[0] == pair[1], zip(self._taken, draft, strict=False))
        shared = sum(1 for _ in both)
        if shared == len(draft):
            return shared
        del self._taken[shared:], self._matchers[shared + 1 :], self._rows[shared + 1 :]
        for token in draft[shared:]:
            ahead = self._matchers[-1].deep_copy()
            if ahead.try_consume_tokens([token]) != 1:
                break
            self._taken.append(token)
            self._place(ahead)
        return len(self._taken)

    def _place(self, matcher: LLMatcher) -> None:
        self._matchers.append(matcher)
        self._rows.append(None)

    def _row(self, place: int) -> Row:
        """Raises: SpecdecError where the library gives up, as for a grammar of too many states."""
        if (known := self._rows[place]) is not None:
            return known
        matcher, row = self._matchers[place], np.zeros((1, self._words), dtype=np.int32)
        fill_next_token_bitmask(matcher, row)
        if matcher.is_error():
            raise SpecdecError(
                f"the grammar cannot be followed any further: {one_line(matcher.get_error())}",
                "simplify the schema or grammar",
            )
        found: Row = row[0]
        self._rows[place] = found
        return found


class ScoutBeside(Scout):
    """A scout whose work is done by `thread`, one question after the other; `begin` does not wait for it."""

    def __init__(self, make: Callable[[], LLMatcher], vocab_size: int, thread: Executor) -> None:
        super().__init__(make, vocab_size)
        self._thread = thread

    def begin(self, draft: Sequence[int]) -> None:
        """`rows` of these tokens will be asked for; an error shows then."""
        self._thread.submit(super().rows, list(draft))

    def rows(self, draft: Sequence[int]) -> list[Row]:
        return self._thread.submit(super().rows, list(draft)).result()

    def advance(self, emitted: Sequence[int]) -> None:
        self._thread.submit(super().advance, list(emitted))


def one_line(text: str) -> str:
    """A foreign message on one line of at most 160 characters."""
    words = " ".join(text.split())
    return words if len(words) <= 160 else words[:157] + "..."
