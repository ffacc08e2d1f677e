"""A cut vocabulary for drafting: scores of the most useful tokens only. Law: q is what was drawn, so any cut is exact.

At 27B in 4 bits the target's output head is three times the bytes of an MTP head, and each drafted token reads both.
Tokenizers that merge number their tokens in the order of the merges, the most frequent first. So the first rows of the
output head, a view of its weights, serve nearly every token (FR-Spec: Zhao et al. 2025, arXiv:2502.14856); those of the
tokens that the text itself has, and of those that end an answer, come beside them.
Letters: T rows, D hidden size, V the target's vocabulary size.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import mlx.core as mx
import mlx.nn as nn

from specdec_cli.engine.heads.load_head import Text
from specdec_cli.engine.hidden import OutputHead, same, unhooked

# Tokens that are scored of a vocabulary of LARGE or more.
FIRST, LARGE = 32_768, 98_304
# Tokens of the text beside the first ones, at most; the newest stay.
MOST_SEEN = 1024
# What is not scored has no odds beside what is, yet is finite in every type: where a constraint forbids all that is
# scored, what it allows still has a law.
NO_ODDS = -3e4
# The share of the target's own words that a draft must be able to have: the others cost more than the cut saves.
COVERED = 0.97


class Shortlist:
    """One conversation's: the `first` tokens of the vocabulary, `always` more, and those of its text."""

    def __init__(self, output_head: OutputHead, first: int, always: Iterable[int] = ()) -> None:
        self.first, self._output_head, self._always = first, output_head, tuple(always)
        self._leading = _rows(output_head.module, slice(0, first))
        self._seen = {token: None for token in self._always if token >= first}
        self._ids, self._others = mx.array([], dtype=mx.int32), None
        self._changed = bool(self._seen)

    def fresh(self) -> Shortlist:
        """The same for another conversation."""
        return Shortlist(self._output_head, self.first, self._always)

    @property
    def nbytes(self) -> int:
        """The part of the output head's bytes that a drafted token reads."""
        share = (self.first + len(self._seen)) / self._output_head.vocab_size
        return round(min(share, 1.0) * self._output_head.nbytes)

    @property
    def proven(self) -> bool:
        """Whether rows score by themselves as they do among all. One pass of the whole output head."""
        drawn = mx.random.normal((1, self._output_head.hidden_size), key=mx.random.key(0))
        ids = mx.array([*range(self.first), *self._seen])
        return same(self.logits(drawn)[:, ids], self._output_head.logits(drawn)[:, ids])

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
        scores = self._score(self._leading, hidden)
        width = self._output_head.vocab_size - self.first
        found = mx.pad(scores, [(0, 0), (0, width)], constant_values=mx.array(NO_ODDS, scores.dtype))
        if not self._seen:
            return found
        if self._changed:
            self._ids = mx.array(list(self._seen), dtype=mx.int32)
            self._others, self._changed = _rows(self._output_head.module, self._ids), False
        places = mx.broadcast_to(self._ids, (hidden.shape[0], self._ids.size))
        return mx.put_along_axis(found, places, self._score(self._others, hidden), axis=-1)

    def _score(self, rows: nn.Module, hidden: mx.array) -> mx.array:
        scores: mx.array = unhooked(rows, self._output_head.method)(hidden[None])[0]
        return scores


def _rows(module: nn.Module, index: slice | mx.array) -> nn.Module:
    """`module` with those rows of its weights, be they packed or not; a slice takes no memory."""
    found, rows = copy.copy(module), module.weight.shape[0]
    for name, value in module.items():
        if isinstance(value, mx.array) and value.ndim and value.shape[0] == rows:
            found[name] = value[index]
    return found


def shortlist_for(output_head: OutputHead, texts: Sequence[Text], always: Iterable[int]) -> Shortlist | None:
    """The tokens to draft from; None for the whole vocabulary: a small one, or one whose first tokens cover too little.

    `texts` are the target's own; tokens of `always` are in every list.
    """
    always = tuple(always)
    if output_head.vocab_size < LARGE or coverage(texts, FIRST, always) < COVERED:
        return None
    shortlist = Shortlist(output_head, FIRST, always)
    return shortlist if shortlist.proven else None


def coverage(texts: Sequence[Text], first: int, always: Iterable[int]) -> float:
    """The share of the target's own words that a draft over the `first` tokens can have."""
    covered = words = 0
    for text in texts:
        seen = {*always, *text.context[: text.begin]}
        for token in text.context[text.begin :]:
            covered += token < first or token in seen
            seen.add(token)
        words += len(text.context) - text.begin
    return covered / max(words, 1)
