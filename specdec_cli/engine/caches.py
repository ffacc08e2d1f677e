"""Exact rollback of key/value caches. Law: a trim that did not happen is an error, never a silent wrong answer.

Only this module knows cache kinds. So far: plain `KVCache`, which trims by moving its offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from specdec_cli.errors import Refused, SpecdecError

ROLLS_BACK = (KVCache,)


class Caches:
    """All layer caches of one network, moved together. Lengths are in tokens."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.layers: list[Any] = make_prompt_cache(network)
        self.length = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the cache classes in use, each once."""
        return tuple(sorted({type(layer).__name__ for layer in self.layers}))

    def check(self, name: str) -> None:
        """Raises: Refused, naming the model and the first cache kind that cannot be rolled back exactly."""
        for layer in self.layers:
            if type(layer) not in ROLLS_BACK:
                kind = type(layer).__name__
                raise Refused(
                    f"{name} keeps a {kind}, and specdec rolls back only {ROLLS_BACK[0].__name__} exactly so far",
                    "use a model with plain attention caches, such as Qwen3 or Llama 3",
                )

    def grown(self, tokens: int) -> None:
        """The network has just appended `tokens` positions."""
        self.length += tokens

    def trim(self, tokens: int) -> None:
        """Take the last `tokens` positions back on every layer.

        Raises: SpecdecError if any layer took back a different number (mlx-lm's own helper returns 0 silently).
        """
        if tokens == 0:
            return
        for layer in self.layers:
            trimmed = layer.trim(tokens)
            if trimmed != tokens:
                self.reset()
                raise SpecdecError(
                    f"a {type(layer).__name__} took back {trimmed} of {tokens} tokens",
                    "please report this with the model's name; `--drafter none` decodes without rollback",
                )
        self.length -= tokens

    def reset(self) -> None:
        """Forget everything."""
        self.layers[:] = make_prompt_cache(self._network)
        self.length = 0

    def evaluate(self) -> None:
        """Wait until the contents are computed (mlx is lazy)."""
        mx.eval([layer.state for layer in self.layers])


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading ids that `a` and `b` share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
