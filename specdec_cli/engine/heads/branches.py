"""Proposals of a head at every position of a known text at once. Law: what it would propose there, had it drafted.

Teacher forcing: while a head is right it has read the text's own tokens, so its K-th guess at a position is that of one
pass per step over all positions side by side. Step s of position p sees the entries of positions 0 … p, which come from
the target's own states, and its own entries of the steps before, and nothing of other positions.
Letters: T positions, K steps, D hidden size, H heads of keys, V the target's vocabulary size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.heads.mtp import MtpHead
from specdec_cli.engine.hidden import Hidden
from specdec_cli.engine.readout import Readout

# Logits of that many positions are held at once.
ROWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A text, the target's own from its token `begin` on, and the target's states [T - 1, D] before each next token."""

    context: Sequence[int]
    begin: int
    hidden: Hidden

    def scored(self, steps: int) -> range:
        """The tokens of its own that can be the first of `steps` guesses."""
        return range(max(self.begin, 2), len(self.context) - steps + 1)


class Branches:
    """What a layer's attention takes for its cache, in step s = 0 … K - 1, each over the same T positions."""

    def __init__(self) -> None:
        self._steps: list[tuple[mx.array, mx.array]] = []

    @property
    def offset(self) -> int:
        """The position of the first row: each step is one later than the step before."""
        return len(self._steps)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Keys and values [1, H, (s + 1) T, …] of all steps so far."""
        self._steps.append((keys, values))
        all_keys, all_values = ([step[part] for step in self._steps] for part in (0, 1))
        return mx.concatenate(all_keys, axis=2), mx.concatenate(all_values, axis=2)

    def make_mask(self, rows: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """[T, (s + 1) T]: the first step's entries up to the row's own position, and its own of every later step."""
        before = mx.tri(rows, rows, 0, mx.bool_)
        return mx.concatenate([before, *[mx.eye(rows).astype(mx.bool_)] * self.offset], axis=1)


def guesses(head: MtpHead, readout: Readout, text: Text, scored: range, steps: int) -> list[list[int]]:
    """[K][n]: the tokens that `head` guesses at positions `scored` of `text`, and for the K - 1 tokens after each."""
    return [_best(readout, states) for states in outputs(head, readout, text, scored, steps)]


def outputs(head: MtpHead, readout: Readout, text: Text, scored: range, steps: int) -> list[mx.array]:
    """K times [n, D]: what the target's output head scores for `guesses`; lazy.

    A guess after a token that lies behind the text's end means nothing.
    """
    recipe, cache, rows = head.recipe, Branches(), max(scored.stop - 2, 0)
    carried, found = text.hidden[recipe.reads][:rows], []
    context = [*text.context, *[0] * steps]
    for step in range(steps if scored else 0):
        begin = 1 + step - recipe.lag
        tokens = mx.array(context[begin : begin + rows], dtype=mx.int32)
        done = head(readout.embed(tokens), carried, cache)
        found.append(done.scored[scored.start - 2 :])
        carried = done.carried
    return found or [carried[:0]] * steps


def _best(readout: Readout, scored: mx.array) -> list[int]:
    """The token of the best score, for each row of `scored` [n, D]."""
    found: list[int] = []
    for at in range(0, scored.shape[0], ROWS):
        found += device.to_list(mx.argmax(readout.logits(scored[at : at + ROWS]), axis=-1))
    return found
