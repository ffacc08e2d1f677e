"""Explicit randomness: every draw is a function of (seed, stream, position) and of nothing else.

Law: no state. Asking twice gives the same noise; another seed, stream or position gives independent noise.
Letters: V width of a distribution.

The four streams, and what their position counts:

* "target": the absolute position of the token in the context. `coupled` and `match` draw the answer with it, which is
  why the answer does not depend on rounds.
* "draft": the draft's own draws, counted from the start of the answer, never the absolute position. After a rejection
  the next round drafts for positions that were drafted before, and under `block` the earlier verdict depended on
  every draft token: the same noise again would bias what follows.
* "accept" and "residual": one draw a round; anything that differs from round to round of an answer, such as the
  number of the round, or the length of the context when it starts (every round emits a token).

A key is 64 bits of BLAKE2b over the three. Adding them up (seed + position) would make seed 1 at position 2 the same
as seed 2 at position 1, and `mx.random.split` would need a state or a walk; a hash needs neither and costs a
microsecond. Two of n keys collide with odds n^2 / 2^65: 3e-8 for a million draws.

Tails. `mx.random.uniform` in float32 has steps of 2^-32 near 0 but of 2^-24 near 1. `mx.random.gumbel` takes
-log(-log u), so its upper tail, the one that wins, ends at 16.6 and a token below about 2^-24 = 6e-8 is never drawn,
and u = 0 gives -inf. Here u is reflected: -log(-log1p(-u)) with u shifted by half a step reaches 22.9, is always
finite, and its lower tail ends at -2.8 (6e-8 of the mass, which never wins among many tokens).
A token's probability is then wrong by at most 2^-32: 2e-5 in total variation for V = 150k even if all of
the mass lay in such tokens (4e-3 for mx.random.gumbel).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from specdec_cli.engine.device import fused

Stream = Literal["target", "draft", "accept", "residual"]
HALF_STEP = 2.0**-33
ZERO = mx.array(0.0)


def attempt_seed(seed: int, attempt: int) -> int:
    """The seed of the `attempt`-th further answer to one prompt: independent noise, and attempt 0 is `seed` itself."""
    if attempt == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}/attempt/{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True, slots=True)
class Noise:
    """All randomness of one answer; `seed` is any integer."""

    seed: int

    def gumbel(self, stream: Stream, position: int, width: int) -> mx.array:
        """Standard Gumbel noise [V], V = `width`, float32, finite.

        Another width is other noise, not a prefix of this: draw at the target's width and cut or pad the draft.
        """
        return _gumbels(self._keys(stream, position, 1), _of_width(width))

    def gumbels(self, stream: Stream, first: int, rows: int, width: int) -> mx.array:
        """The Gumbel noise of the positions first … first + rows - 1: [rows, V], drawn at once."""
        return _gumbels(self._keys(stream, first, rows), _of_width(width)).reshape(rows, width)

    def uniform(self, stream: Stream, position: int, width: int) -> mx.array:
        """Uniform numbers [width], float32, in the open interval (0, 1), in steps of 2^-32 near 0.

        u <= a is therefore never true for a = 0 and always for a = 1.
        """
        return _uniforms(self._keys(stream, position, 1), _of_width(width))

    def _keys(self, stream: Stream, first: int, rows: int) -> mx.array:
        """The keys [rows, 2] of the positions from `first` on, uint32; each as `mx.random.key` makes it."""
        digests = (
            hashlib.blake2b(f"{self.seed}/{stream}/{position}".encode(), digest_size=8).digest()
            for position in range(first, first + rows)
        )
        return mx.array([[int.from_bytes(d[:4], "big"), int.from_bytes(d[4:], "big")] for d in digests], mx.uint32)


def _of_width(width: int) -> mx.array:
    """A shape [width] without memory: a fused function takes arrays alone."""
    return mx.broadcast_to(ZERO, (width,))


def _shifted(keys: mx.array, like: mx.array) -> mx.array:
    """Uniform numbers of `keys` [rows, 2], V as in `like`: [rows, V], or [V] for a single key.

    A row depends on its own key alone.
    """
    if keys.shape[0] == 1:
        # vmap's reshapes would keep the arithmetic from being fused.
        return mx.random.uniform(shape=like.shape, key=keys.reshape(2)) + HALF_STEP
    draw = mx.vmap(lambda key: mx.random.uniform(shape=like.shape, key=key))
    drawn: mx.array = draw(keys)
    return drawn + HALF_STEP


_uniforms = fused(_shifted)


@fused
def _gumbels(keys: mx.array, like: mx.array) -> mx.array:
    return -mx.log(-mx.log1p(-_shifted(keys, like)))
