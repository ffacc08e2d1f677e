"""Tiny checkpoints packed into few bits by mlx-lm itself, as a conversion would be."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, quantize_model

from specdec_cli.engine.load import blank_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.checkpoint import Checkpoint

GPT_OSS = {
    "model_type": "gpt_oss",
    "num_experts_per_tok": 4,
    "vocab_size": 201_088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "sliding_window": 128,
    "rope_theta": 150_000,
}
GPT_OSS_DENSE = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.router")

# 8 of 128 experts a token.
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151_936,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40_960,
    "quantization": {"group_size": 64, "bits": 4},
}


def packed_folder(folder, source, bits=4, group_size=32, dtype=None):
    """The model in `source`, of which the head is left behind as converters do, packed by mlx-lm's own rules.

    `dtype` is the type of what is not packed, None: as it is.
    """
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    model, config = load_model(source)
    if dtype:
        model.set_dtype(getattr(mx, dtype))
        config["dtype"] = dtype
    model, config = quantize_model(model, config, group_size, bits)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def packed_network(config, dtype="bfloat16"):
    """The network of `config`, packed as mlx-lm packs it; lazy."""
    network, given = blank_network(Checkpoint("m", Path(), config, ())), config["quantization"]
    usual = {key: value for key, value in given.items() if not isinstance(value, dict)}

    def packs(path, module):
        fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % usual["group_size"] == 0
        return fits and given.get(path, usual)

    nn.quantize(network, class_predicate=packs)
    network.set_dtype(getattr(mx, dtype))
    return network


def model_as(config):
    """The model of `config`: its sizes are true, and nothing is computed."""
    return CachedModel(packed_network(config), "m")


def packed_as(folder, config, quantization, dtype):
    """A checkpoint of `config` with random weights, packed so."""
    config = config | {"quantization": quantization, "dtype": dtype}
    weights = tree_flatten(packed_network(config, dtype).parameters())
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return Checkpoint("m", folder, config, (folder / "model.safetensors",))


def gpt_oss(layers, experts, **sizes):
    """The configuration of a conversion named MXFP4-Q8: experts as they were published, 8 bits for the rest."""
    dense = [f"model.layers.{i}.{part}" for i in range(layers) for part in GPT_OSS_DENSE]
    rest = {path: {"group_size": 64, "bits": 8} for path in ["model.embed_tokens", "lm_head", *dense]}
    return (
        GPT_OSS
        | {
            "num_hidden_layers": layers,
            "num_local_experts": experts,
            "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
            "quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"} | rest,
        }
        | sizes
    )
