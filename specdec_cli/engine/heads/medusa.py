"""Medusa heads: each guesses one position ahead, all from the same hidden state of the target.

Cai et al., arXiv:2401.10774. Head s adds SiLU of one matrix to the state, and the target's own output head scores the
sum. A chain of guesses, no tree: each token is drawn from its own head's law, whatever was drawn before it, so that
every acceptance rule stays exact. Tensors have vLLM's names. Letters: B conversations, T tokens, D hidden size.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from specdec_cli.core.kinds import MEDUSA
from specdec_cli.engine.heads.mtp import Config, HeadModule, HeadPass, Tensors


class ResidualBlock(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """x + SiLU(W x). W begins as 0: a new head guesses the next token once more."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.layers = [nn.Linear(hidden_size, hidden_size, bias=False)]
        self.layers[0].weight = mx.zeros((hidden_size, hidden_size))

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x = x + nn.silu(layer(x))
        return x


class MedusaHeads(HeadModule):
    """So many heads as a draft may have tokens. They keep nothing of a context but its last state."""

    kind = MEDUSA.name
    output = None

    def __init__(self, heads: int, hidden_size: int) -> None:
        super().__init__()
        self.blocks = [ResidualBlock(hidden_size) for _ in range(heads)]

    @property
    def most(self) -> int:
        """Tokens of a draft."""
        return len(self.blocks)

    def __call__(self, embedded: mx.array, hidden: mx.array, cache: Any = None, step: int = 0) -> HeadPass:
        """`hidden` [B, T, D], and by head `step` what is to be scored; the state itself is carried on."""
        return HeadPass(self.blocks[step](hidden), hidden)

    def known(self, step: HeadPass, k: int) -> mx.array:
        """Of the `k` tokens drafted from the first `step`, what is scored before any is drawn [1, K, D]: all."""
        return mx.concatenate([block(step.carried) for block in self.blocks[:k]], axis=1)

    def guesses(self, embedded: mx.array, hidden: mx.array, steps: int, shown: Any = None) -> list[mx.array]:
        """As `MtpHead.guesses`."""
        return [block(hidden) for block in self.blocks[:steps]]


class MedusaBuild:
    """As `mtp.Build`: the number of heads is in the configuration."""

    def convert(self, config: Config, tensors: Tensors) -> Tensors:
        """As they are stored."""
        return tensors

    def head(self, config: Config, dense: bool, hidden_size: int) -> MedusaHeads:
        """Empty heads. Raises: KeyError, TypeError, ValueError for an unfit configuration."""
        return MedusaHeads(int(config["num_heads"]), hidden_size)


MEDUSA_BUILD = MedusaBuild()
