"""Families of heads: their decoder layers, which are mlx-lm's own, and how they are used. One row a family.

What a wrong row costs is acceptance alone; the check at load finds it. Sources: Qwen3-Next's and DeepSeek-V3's reports
(arXiv:2412.19437, section 2.2); vllm#46075 for what GLM carries on; XiaomiMiMo's modelling code for its order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import deepseek_v3, glm4_moe, glm4_moe_lite, mimo, qwen3_5, qwen3_next

from specdec_cli.engine.heads.mtp import QWEN, MtpHead, Recipe
from specdec_cli.models import heads as families

Tensors = dict[str, mx.array]
Config = Mapping[str, Any]
LayerOf = Callable[[Config, bool], tuple[Callable[[], nn.Module], float]]
"""(the language model's configuration, whether the head is dense) -> (maker of a decoder layer, epsilon of norms)."""


@dataclass(frozen=True, slots=True)
class Build:
    """How a family's head is made. `converted` turns tensors of its layer as they are stored into those of the layer.

    `array_mask`: its attention takes no other mask. `scores`: it has an output head of its own.
    """

    layer: LayerOf
    recipe: Recipe
    converted: Callable[[Config, Tensors], Tensors] = lambda config, tensors: tensors
    array_mask: bool = False
    scores: bool = False

    def head(self, config: Config, dense: bool, hidden_size: int, recipe: Recipe | None = None) -> MtpHead:
        """An empty head. Raises: ValueError, KeyError, TypeError, AttributeError for an unfit configuration."""
        layer, eps = self.layer(config, dense)
        outputs = int(config["vocab_size"]) if self.scores else 0
        return MtpHead(layer, hidden_size, eps, recipe or self.recipe, self.array_mask, outputs)


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


def _latent(config: Config, tensors: Tensors) -> Tensors:
    """`kv_b_proj` as the two matrices that mlx-lm's attention over latents takes, by mlx-lm's own conversion."""
    args = deepseek_v3.ModelArgs.from_dict(dict(config) | {"num_hidden_layers": 1})
    own = {name: value for name, value in tensors.items() if name.startswith("layers.")}
    found = deepseek_v3.Model.sanitize(SimpleNamespace(args=args), {f"model.{name}": own[name] for name in own})
    kept = {name: value for name, value in tensors.items() if name not in own}
    return kept | {name.removeprefix("model."): value for name, value in found.items()}


_DEEPSEEK = _after_the_trunk(deepseek_v3.ModelArgs, deepseek_v3.DeepseekV3DecoderLayer)
_FLASH = _after_the_trunk(glm4_moe_lite.ModelArgs, glm4_moe_lite.Glm4MoeLiteDecoderLayer)
BUILDS = {
    families.QWEN.name: Build(_qwen, QWEN),
    families.DEEPSEEK.name: Build(_DEEPSEEK, Recipe(carries="raw"), _latent, array_mask=True),
    families.GLM.name: Build(_after_the_trunk(glm4_moe.ModelArgs, glm4_moe.DecoderLayer), Recipe()),
    families.FLASH.name: Build(_FLASH, Recipe(), _latent, array_mask=True, scores=True),
    families.MIMO_7B.name: Build(_mimo, Recipe(embedding_first=False)),
}
