"""Heads that predict several tokens (MTP): one layer that reads a token and a hidden state. One class for all families.

DeepSeek-V3 (arXiv:2412.19437, section 2.2), as Qwen3-Next and its successors train it. What differs between families is
in `Recipe`: nothing fails if one of these is wrong, the head only guesses badly.
Letters: T tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import create_attention_mask

from specdec_cli.engine.hidden import READ


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a family's head is used.

    `reads` is the target's hidden state that it was trained on, `carries` what of its own output takes that state's
    place at the next draft token: after its last norm or before. `embedding_first` is the order in which token and
    state are joined. A state is read with the token after it.
    """

    reads: str = READ
    carries: Literal["normed", "raw"] = "normed"
    embedding_first: bool = True


QWEN = Recipe()


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Result of a pass over T pairs: what the target's output head scores and what is carried on, each [T, D]. Lazy."""

    scored: mx.array
    carried: mx.array

    def last(self) -> Step:
        """The last row."""
        return Step(self.scored[-1:], self.carried[-1:])


class MtpHead(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """One decoder layer over norms of a token's embedding and of a hidden state. Names are those of its tensors."""

    def __init__(
        self,
        layer: Callable[[], nn.Module],
        hidden_size: int,
        eps: float,
        recipe: Recipe = QWEN,
        array_mask: bool = False,
        outputs: int = 0,
    ) -> None:
        """`layer` makes the decoder layer, of the full-attention kind; `array_mask`: it takes masks as arrays only.

        `outputs` are the tokens that an output head of its own scores, 0: the target's scores.
        """
        super().__init__()
        self._array_mask = array_mask
        self.fc = nn.Linear(2 * hidden_size, hidden_size, bias=False)
        self.pre_fc_norm_embedding = nn.RMSNorm(hidden_size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(hidden_size, eps=eps)
        self.layers = [layer()]
        self.norm = nn.RMSNorm(hidden_size, eps=eps)
        self.output = nn.Linear(hidden_size, outputs, bias=False) if outputs else None
        self.recipe = recipe

    def __call__(self, embedded: mx.array, hidden: mx.array, cache: Any = None) -> Step:
        """Pairs of a token's embedding and the state of the position before it, each [T, D], after those in `cache`."""
        parts = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
        joined = mx.concatenate(parts if self.recipe.embedding_first else parts[::-1], axis=-1)
        states = self.fc(joined)[None]
        mask = create_attention_mask(states, cache, return_array=self._array_mask)
        raw = self.layers[0](states, mask, cache)
        normed = self.norm(raw)
        return Step(normed[0], (normed if self.recipe.carries == "normed" else raw)[0])
