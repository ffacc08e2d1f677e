"""Tiny Qwen3.5 checkpoints as original repositories store them: norms less 1, experts fused, head beside the trunk.

numpy alone, so that another runtime's environment draws the very same weights from the same seed.
"""

import json

import numpy as np
from safetensors.numpy import save_file

TEXT = {
    "model_type": "qwen3_5_text",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 96,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "tie_word_embeddings": False,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {
        "type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
    },
}
MOE = {
    "model_type": "qwen3_5_moe_text",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "norm_topk_prob": True,
}


def config_of(moe=False):
    kind = "qwen3_5_moe" if moe else "qwen3_5"
    return {"model_type": kind, "dtype": "float32", "text_config": TEXT | (MOE if moe else {})}


def raw_tensors(moe=False, seed=5, text=TEXT):
    """Every tensor of the checkpoint by its original name; `text` is the language model's configuration."""
    drawn = np.random.Generator(np.random.PCG64(seed))

    def matrix(*shape):
        return (drawn.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    def norm(size):
        return (0.1 * drawn.standard_normal(size)).astype(np.float32)

    size, tensors = text["hidden_size"], {}
    for layer in range(text["num_hidden_layers"]):
        path = f"model.language_model.layers.{layer}"
        linear = (layer + 1) % text["full_attention_interval"] != 0
        tensors |= _linear_attention(path, text, drawn, matrix) if linear else _attention(path, text, matrix, norm)
        tensors |= _feed_forward(path, text, moe, matrix, norm)
    tensors["model.language_model.embed_tokens.weight"] = 8 * matrix(text["vocab_size"], size)
    tensors["model.language_model.norm.weight"] = norm(size)
    tensors["lm_head.weight"] = matrix(text["vocab_size"], size)
    tensors |= _attention("mtp.layers.0", text, matrix, norm) | _feed_forward("mtp.layers.0", text, moe, matrix, norm)
    tensors["mtp.fc.weight"] = matrix(size, 2 * size)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        tensors[f"mtp.{name}.weight"] = norm(size)
    return tensors


def _attention(path, text, matrix, norm):
    size, wide = text["hidden_size"], text["head_dim"] * text["num_attention_heads"]
    few = text["head_dim"] * text["num_key_value_heads"]
    shapes = {"q_proj": (2 * wide, size), "k_proj": (few, size), "v_proj": (few, size), "o_proj": (size, wide)}
    found = {f"{path}.self_attn.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
    return found | {f"{path}.self_attn.{name}.weight": norm(text["head_dim"]) for name in ("q_norm", "k_norm")}


def _linear_attention(path, text, drawn, matrix):
    size, heads = text["hidden_size"], text["linear_num_value_heads"]
    keys = text["linear_key_head_dim"] * text["linear_num_key_heads"]
    values = text["linear_value_head_dim"] * heads
    shapes = {
        "in_proj_qkv": (2 * keys + values, size),
        "in_proj_z": (values, size),
        "in_proj_b": (heads, size),
        "in_proj_a": (heads, size),
        "out_proj": (size, values),
        "conv1d": (2 * keys + values, 1, text["linear_conv_kernel_dim"]),
    }
    found = {f"{path}.linear_attn.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
    found[f"{path}.linear_attn.norm.weight"] = np.ones(text["linear_value_head_dim"], np.float32)
    found[f"{path}.linear_attn.dt_bias"] = np.ones(heads, np.float32)
    found[f"{path}.linear_attn.A_log"] = drawn.uniform(-3, 0, heads).astype(np.float32)
    return found


def _feed_forward(path, text, moe, matrix, norm):
    size, found = text["hidden_size"], {}
    for name in ("input_layernorm", "post_attention_layernorm"):
        found[f"{path}.{name}.weight"] = norm(size)
    parts = {"": text["intermediate_size"]}
    if moe:
        experts, inner = MOE["num_experts"], MOE["moe_intermediate_size"]
        found[f"{path}.mlp.experts.gate_up_proj"] = matrix(experts, 2 * inner, size)
        found[f"{path}.mlp.experts.down_proj"] = matrix(experts, size, inner)
        found[f"{path}.mlp.gate.weight"] = matrix(experts, size)
        found[f"{path}.mlp.shared_expert_gate.weight"] = matrix(1, size)
        parts = {"shared_expert.": MOE["shared_expert_intermediate_size"]}
    for part, inner in parts.items():
        for name, shape in {"gate_proj": (inner, size), "up_proj": (inner, size), "down_proj": (size, inner)}.items():
            found[f"{path}.mlp.{part}{name}.weight"] = matrix(*shape)
    return found


def write_checkpoint(folder, tensors, config, files=None, metadata=None):
    """A folder with `tensors` in `model.safetensors`, or in the `files` that name some of them by their prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    left = dict(tensors)
    for name, prefix in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        own = {key: left.pop(key) for key in list(left) if key.startswith(prefix)}
        save_file(own, folder / name, metadata)
    if left:
        save_file(left, folder / "model.safetensors", metadata)
    return folder
