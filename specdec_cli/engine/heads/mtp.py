"""Heads that predict several tokens (MTP): one layer that reads a token and a hidden state.

DeepSeek-V3 (arXiv:2412.19437, section 2.2), as Qwen3-Next and its successors train it. Decoder layers are mlx-lm's own.
A family's row is in `models.heads`. Nothing fails if its recipe is wrong, the head only guesses badly; the check at
load finds it. Sources: vllm#46075 for what GLM carries on; XiaomiMiMo's modelling code for its order. Letters: B
conversations, T tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import deepseek_v3, glm4_moe, glm4_moe_lite, mimo, qwen3_5, qwen3_next
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache

from specdec_cli.core.kinds import MTP
from specdec_cli.core.request import MAX_K, MAX_ROWS
from specdec_cli.engine.cache.window import WindowKVCache

Tensors = dict[str, mx.array]
Config = Mapping[str, Any]
LayerOf = Callable[[Config, bool], tuple[Callable[[], nn.Module], float]]
"""(the language model's configuration, whether the head is dense) -> (maker of a decoder layer, epsilon of norms)."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a family's head is used.

    It reads the state that the target's output head reads, and the token after it. From the second draft token on its
    own output takes the place of that state: `carries` it "normed", after its last norm, or "raw", before it.
    `embedding_first`: the token's embedding is joined before the state, else after it.
    """

    carries: Literal["normed", "raw"] = "normed"
    embedding_first: bool = True


QWEN = Recipe()


@dataclass(frozen=True, slots=True, eq=False)
class HeadPass:
    """Result of a pass over pairs: what the target's output head scores and what is carried on, [B, T, D]. Lazy."""

    scored: mx.array
    carried: mx.array

    def last(self) -> HeadPass:
        """The last position's."""
        return HeadPass(self.scored[:, -1:], self.carried[:, -1:])


class HeadModule(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """What all heads have. Of a family, that is what it does otherwise.

    Besides, each has `kind`, that of its drafter, `most`, the tokens of a draft, and `output`, which scores in place of
    the target's output head, or None. `shown`: it attends to the target's own keys and values, which come in place of
    a cache. A step has `depth` layers.
    """

    shown = False
    depth = 1

    @property
    def shares(self) -> Mapping[str, float]:
        """[path of a matrix] = the share of it that a step reads, where that is not all."""
        return {}

    def new_cache(self, recent: int | None) -> KVCache | WindowKVCache | None:
        """An empty one, of all positions or of the last `recent` ones; None: it keeps none."""
        return None

    def known(self, step: HeadPass, k: int) -> mx.array:
        """Of the `k` tokens drafted from the first `step`, what is scored before any is drawn [1, 1, D]: the first."""
        return step.scored


class MtpHead(HeadModule):
    """One decoder layer over norms of a token's embedding and of a hidden state. Names are those of its tensors."""

    kind = MTP.name
    most = MAX_K

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

    def new_cache(self, recent: int | None) -> KVCache | WindowKVCache:
        """An empty one, of all positions or of the last `recent` ones."""
        return KVCache() if recent is None else WindowKVCache(recent, max(recent, MAX_ROWS))

    def guesses(self, embedded: mx.array, hidden: mx.array, steps: int, shown: Any = None) -> list[mx.array]:
        """What the output head scores in step s, from 1 to `steps`, each [B, T, D]: row p guesses token p + 1 + s.

        Teacher forced, as it is used: step s reads the text's token p + s (`embedded` [B, T, D] begins with token 1)
        and what step s - 1 carried on, at first `hidden` [B, T, D]. It sees the entries of the positions up to p, which
        come from the target's states, and its own of the steps between. The last rows of later steps mean nothing.
        """
        ahead, found, carried = _Ahead(embedded.shape[1]), list[mx.array](), hidden
        for s in range(steps):
            step = self(mx.roll(embedded, -s, 1), carried, ahead)
            found.append(step.scored)
            carried = step.carried
        return found

    def __call__(self, embedded: mx.array, hidden: mx.array, cache: Any = None, step: int = 0) -> HeadPass:
        """Pairs of a token's embedding and the state of the position before it, [B, T, D], after those in `cache`."""
        parts = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
        joined = mx.concatenate(parts if self.recipe.embedding_first else parts[::-1], axis=-1)
        states = self.fc(joined)
        mask = create_attention_mask(states, cache, return_array=self._array_mask)
        raw = self.layers[0](states, mask, cache)
        normed = self.norm(raw)
        return HeadPass(normed, normed if self.recipe.carries == "normed" else raw)


class _Ahead:
    """In place of a cache, T positions a step: each sees itself, those of the first step before it, and its own."""

    def __init__(self, positions: int) -> None:
        self._positions, self.offset = positions, 0
        self._kept: tuple[mx.array, mx.array] | None = None

    def make_mask(self, *_: Any, **__: Any) -> mx.array:
        """[T, (steps so far + 1) T]."""
        own = [mx.eye(self._positions, dtype=mx.bool_)] * self.offset
        return mx.concatenate([mx.tril(mx.ones((self._positions,) * 2, dtype=mx.bool_)), *own], axis=1)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Those of one more step, whose positions are one further on; returns all."""
        if self._kept is not None:
            keys, values = (mx.concatenate([a, b], axis=2) for a, b in zip(self._kept, (keys, values), strict=True))
        self._kept = keys, values
        self.offset += 1
        return self._kept


@dataclass(frozen=True, slots=True)
class Build:
    """How a family's head is made. `convert` turns tensors of its layer as they are stored into those of the layer.

    `array_mask`: its attention takes no other mask. `scores`: it has an output head of its own.
    """

    layer: LayerOf
    recipe: Recipe = QWEN
    convert: Callable[[Config, Tensors], Tensors] = lambda config, tensors: tensors
    array_mask: bool = False
    scores: bool = False

    def head(self, config: Config, dense: bool, hidden_size: int) -> MtpHead:
        """An empty head. Raises: ValueError, KeyError, TypeError, AttributeError for an unfit configuration."""
        layer, eps = self.layer(config, dense)
        outputs = int(config["vocab_size"]) if self.scores else 0
        return MtpHead(layer, hidden_size, eps, self.recipe, self.array_mask, outputs)


def _qwen(config: Config, dense: bool) -> tuple[Callable[[], nn.Module], float]:
    """The trunk's own decoder layer in its full-attention kind."""
    values = dict(config) | ({"num_experts": 0} if dense else {})
    if "qwen3_next" in str(config.get("model_type")):
        old = qwen3_next.ModelArgs.from_dict(values)
        old = replace(old, full_attention_interval=1, mlp_only_layers=[], decoder_sparse_step=1)
        return lambda: qwen3_next.Qwen3NextDecoderLayer(old, 0), old.rms_norm_eps
    args = qwen3_5.TextModelArgs.from_dict(values | {"full_attention_interval": 1})
    return lambda: qwen3_5.DecoderLayer(args, 0), args.rms_norm_eps


def _after_the_trunk(args_class: Any, layer: Any) -> LayerOf:
    """A layer as the trunk's last ones are: dense where the head has no experts."""

    def of(config: Config, dense: bool) -> tuple[Callable[[], nn.Module], float]:
        args = args_class.from_dict(dict(config) | ({"n_routed_experts": None} if dense else {}))
        args = replace(args, first_k_dense_replace=0)
        return lambda: layer(args, 0), args.rms_norm_eps

    return of


def _mimo(config: Config, dense: bool) -> tuple[Callable[[], nn.Module], float]:
    args = mimo.ModelArgs.from_dict(dict(config))
    return lambda: mimo.TransformerBlock(args), args.rms_norm_eps


def _split_latents(config: Config, tensors: Tensors) -> Tensors:
    """`kv_b_proj` as the two matrices that mlx-lm's attention over latents takes, by mlx-lm's own conversion."""
    args = deepseek_v3.ModelArgs.from_dict(dict(config) | {"num_hidden_layers": 1})
    own = {f"model.{name}": value for name, value in tensors.items() if name.startswith("layers.")}
    found = deepseek_v3.Model.sanitize(SimpleNamespace(args=args), own)
    kept = {name: value for name, value in tensors.items() if not name.startswith("layers.")}
    return kept | {name.removeprefix("model."): value for name, value in found.items()}


_DEEPSEEK = _after_the_trunk(deepseek_v3.ModelArgs, deepseek_v3.DeepseekV3DecoderLayer)
_FLASH = _after_the_trunk(glm4_moe_lite.ModelArgs, glm4_moe_lite.Glm4MoeLiteDecoderLayer)
QWEN_BUILD = Build(_qwen)
DEEPSEEK = Build(_DEEPSEEK, Recipe(carries="raw"), _split_latents, array_mask=True)
GLM = Build(_after_the_trunk(glm4_moe.ModelArgs, glm4_moe.DecoderLayer))
FLASH = Build(_FLASH, QWEN, _split_latents, array_mask=True, scores=True)
MIMO = Build(_mimo, Recipe(embedding_first=False))
