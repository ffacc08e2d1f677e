"""A cut vocabulary for drafting: scores of the most useful tokens only. Law: q is what was drawn, so any cut is exact.

At 27B in 4 bits the target's output head is three times the bytes of an MTP head, and each drafted token reads both.
Tokenizers that merge number their tokens in the order of the merges, the most frequent first. So the first rows of the
output head, a view of its weights, serve nearly every token; those of the tokens that the text itself has, and of those
that end an answer, come beside them. Letters: T rows, D hidden size, V the target's vocabulary size.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import mlx.core as mx
import mlx.nn as nn

from specdec_cli.engine.intercept import unwatched
from specdec_cli.engine.readout import Readout, same

# Tokens of the text beside the first ones, at most; the newest stay.
MOST_SEEN = 1024
# What is not scored has no odds beside what is, yet is finite in every type: where a constraint forbids all that is
# scored, what it allows still has a law.
NO_ODDS = -3e4


class Shortlist:
    """One conversation's: the `first` tokens of the vocabulary, `always` more, and those of its text."""

    def __init__(self, readout: Readout, first: int, always: Iterable[int] = ()) -> None:
        self.first, self._readout, self._always = first, readout, tuple(always)
        self._leading = _rows(readout.head_module, slice(0, first))
        self._seen = {token: None for token in self._always if token >= first}
        self._ids, self._others = mx.array([], dtype=mx.int32), None
        self._changed = bool(self._seen)

    def fresh(self) -> Shortlist:
        """The same for another conversation."""
        return Shortlist(self._readout, self.first, self._always)

    @property
    def share(self) -> float:
        """Of the output head's bytes, the part that a drafted token reads."""
        return min((self.first + len(self._seen)) / self._readout.vocab_size, 1.0)

    @property
    def proven(self) -> bool:
        """Whether rows score by themselves as they do among all. One pass of the whole output head."""
        drawn = mx.random.normal((1, self._readout.hidden_size), key=mx.random.key(0))
        ids = mx.array([*range(self.first), *self._seen])
        return same(self.logits(drawn)[:, ids], self._readout.logits(drawn)[:, ids])

    def see(self, tokens: Iterable[int]) -> None:
        """The text has these tokens."""
        for token in tokens:
            if token >= self.first and token not in self._seen:
                self._seen[token] = None
                self._changed = True
        while len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]

    def logits(self, hidden: mx.array) -> mx.array:
        """Scores [T, V] of `hidden` [T, D]; NO_ODDS where there is none."""
        scores = self._scored(self._leading, hidden)
        width = self._readout.vocab_size - self.first
        found = mx.pad(scores, [(0, 0), (0, width)], constant_values=mx.array(NO_ODDS, scores.dtype))
        if not self._seen:
            return found
        if self._changed:
            self._ids = mx.array(list(self._seen), dtype=mx.int32)
            self._others, self._changed = _rows(self._readout.head_module, self._ids), False
        assert self._others is not None
        places = mx.broadcast_to(self._ids, (hidden.shape[0], self._ids.size))
        return mx.put_along_axis(found, places, self._scored(self._others, hidden), axis=-1)

    def _scored(self, rows: nn.Module, hidden: mx.array) -> mx.array:
        return self._readout.adjustment(unwatched(rows, self._readout.method)(hidden[None])[0])


def _rows(module: nn.Module, index: slice | mx.array) -> nn.Module:
    """`module` with those rows of its weights, be they packed or not; a slice takes no memory."""
    found, rows = copy.copy(module), module.weight.shape[0]
    for name, value in module.items():
        if isinstance(value, mx.array) and value.ndim and value.shape[0] == rows:
            found[name] = value[index]
    return found
