"""A sliding window's keys and values in the order of time. Law: attention sees what mlx-lm's ring shows it, and the
rows of one pass, MAX_ROWS at most, can be taken back.

mlx-lm's `RotatingKVCache` overwrites the oldest position in place, so a position taken back would already have cost
an older one. Here positions are appended, and the oldest are dropped a step at a time.
Letters: B batch (1), H heads, T tokens fed at once, D head width.
"""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask

from specdec_cli.core.request import MAX_ROWS

STEP_TOKENS = 256


class WindowKVCache:
    """Takes the place of a `RotatingKVCache` of `max_size` positions; `offset` counts all positions read."""

    def __init__(self, max_size: int, slack: int = MAX_ROWS) -> None:
        self.max_size = max_size
        self.slack = slack
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = 0
        self._start = 0
        self._shown = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append [B, H, T, D]; the window of the first of the T tokens and all that follows it."""
        tokens = keys.shape[2]
        used = self.offset - self._start
        if self.keys is None or self.values is None:
            self.keys, self.values = self._roomy([], keys), self._roomy([], values)
        elif used + tokens > self.keys.shape[2]:
            kept = min(used, self.max_size - 1 + self.slack)
            self.keys = self._roomy([self.keys[..., used - kept : used, :]], keys)
            self.values = self._roomy([self.values[..., used - kept : used, :]], values)
            self._start = self.offset - kept
        else:
            self.keys[..., used : used + tokens, :] = keys
            self.values[..., used : used + tokens, :] = values
        self.offset += tokens
        self._shown = min(self.offset - self._start, self.max_size - 1 + tokens)
        return self.keys_and_values()

    def _roomy(self, kept: list[mx.array], new: mx.array) -> mx.array:
        """`kept` and `new` joined, with room for the tokens to come."""
        batch, heads, tokens, width = new.shape
        rows = tokens + sum(part.shape[2] for part in kept)
        step = min(STEP_TOKENS, self.max_size)
        room = mx.zeros((batch, heads, -rows % step, width), new.dtype)
        return mx.concatenate([*kept, new, room], axis=2)

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """The rows that the last update returned: layers that share this cache read them again."""
        assert self.keys is not None and self.values is not None
        end = self.offset - self._start
        return self.keys[..., end - self._shown : end, :], self.values[..., end - self._shown : end, :]

    def kept(self) -> tuple[mx.array, mx.array]:
        """All rows that are still here."""
        assert self.keys is not None and self.values is not None
        end = self.offset - self._start
        return self.keys[..., :end, :], self.values[..., :end, :]

    def restart(self, position: int) -> None:
        """Empty, and what comes next begins at `position`: a whole window of it, or attention would lack some."""
        self.keys = self.values = None
        self.offset = self._start = position

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | str | None:
        """For N tokens about to be appended, over the positions that `update_and_fetch` will return."""
        # A multi-row pass must not see more than a single-row pass would; some models ask for a window one position too
        # wide.
        window = min(window_size or self.max_size, self.max_size)
        before = min(self.offset, self.max_size - 1)
        if N > 1:
            wanted = return_array or before + N > window
            return create_causal_mask(N, before, window_size=window) if wanted else "causal"
        return mx.arange(before + 1) > before - window if before >= window else None

    def reaches(self, position: int) -> bool:
        """Whether `position` can be the end again: its whole window is still here."""
        return self._start <= max(0, position - (self.max_size - 1))

    def trim(self, tokens: int) -> int:
        """Take the last `tokens` positions back; returns how many were, 0 if the window before them is gone."""
        if tokens > self.offset or not self.reaches(self.offset - tokens):
            return 0
        self.offset -= tokens
        return tokens

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None]:
        return self.keys, self.values

    @property
    def nbytes(self) -> int:
        return 0 if self.keys is None or self.values is None else self.keys.nbytes + self.values.nbytes

    def empty(self) -> bool:
        return self.keys is None

    def size(self) -> int:
        return min(self.offset, self.max_size)
