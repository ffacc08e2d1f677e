"""Tiny checkpoints of families beyond Qwen's, as their original repositories store them; drawn with numpy alone."""

import numpy as np

SHARED = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96,
    "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None,
    "tie_word_embeddings": False, "num_nextn_predict_layers": 1, "dtype": "float32",
}  # fmt: skip
EXPERTS = {
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 2,
    "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.7, "first_k_dense_replace": 1,
    "topk_method": "noaux_tc", "scoring_func": "sigmoid",
}  # fmt: skip
CONFIGS = {
    "deepseek_v3": SHARED | EXPERTS | {
        "model_type": "deepseek_v3", "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32, "v_head_dim": 16,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "moe_layer_freq": 1, "attention_bias": False,
    },
    "glm4_moe": SHARED | EXPERTS | {
        "model_type": "glm4_moe", "num_key_value_heads": 2, "head_dim": 32, "use_qk_norm": True, "attention_bias": True,
        "partial_rotary_factor": 0.5,
    },
    "mimo": SHARED | {"model_type": "mimo", "num_key_value_heads": 2},
}  # fmt: skip
CONFIGS["glm4_moe_lite"] = CONFIGS["deepseek_v3"] | {"model_type": "glm4_moe_lite"}
NEXTN = {"fc": "eh_proj", "token": "enorm", "state": "hnorm", "norm": "shared_head.norm"}
NAMES = {
    "deepseek_v3": ("model.layers.2", NEXTN),
    "glm4_moe": ("model.layers.2", NEXTN),
    "glm4_moe_lite": ("model.layers.2", NEXTN),
    "mimo": (
        "model.mtp_layers.0",
        {"fc": "input_proj", "token": "token_layernorm", "state": "hidden_layernorm", "norm": "final_layernorm"},
    ),
}


class Drawn:
    """Tensors of one checkpoint as they are drawn."""

    def __init__(self, family, seed):
        self.config, self.tensors = CONFIGS[family], {}
        self._random = np.random.Generator(np.random.PCG64(seed))

    def matrix(self, name, *shape, size=1.0):
        values = size * self._random.standard_normal(shape) / shape[-1] ** 0.5
        self.tensors[f"{name}.weight"] = values.astype(np.float32)

    def norm(self, name, size):
        self.tensors[f"{name}.weight"] = (1 + 0.4 * self._random.standard_normal(size)).astype(np.float32)

    def vector(self, name, size):
        self.tensors[name] = (0.1 * np.abs(self._random.standard_normal(size))).astype(np.float32)

    def layer(self, path, dense):
        size = self.config["hidden_size"]
        for name in ("input_layernorm", "post_attention_layernorm"):
            self.norm(f"{path}.{name}", size)
        (self._latent if "kv_lora_rank" in self.config else self._attention)(f"{path}.self_attn", size)
        if dense:
            self._gated(f"{path}.mlp", size, self.config["intermediate_size"])
            return
        inner, experts = self.config["moe_intermediate_size"], self.config["n_routed_experts"]
        self.matrix(f"{path}.mlp.gate", experts, size)
        self.vector(f"{path}.mlp.gate.e_score_correction_bias", experts)
        for part in (*(f"experts.{expert}" for expert in range(experts)), "shared_experts"):
            self._gated(f"{path}.mlp.{part}", size, inner)

    def _gated(self, path, size, inner):
        for name, shape in {"gate_proj": (inner, size), "up_proj": (inner, size), "down_proj": (size, inner)}.items():
            self.matrix(f"{path}.{name}", *shape)

    def _attention(self, path, size):
        head = self.config.get("head_dim", size // self.config["num_attention_heads"])
        wide, few = head * self.config["num_attention_heads"], head * self.config["num_key_value_heads"]
        for name, rows in {"q_proj": wide, "k_proj": few, "v_proj": few}.items():
            self.matrix(f"{path}.{name}", rows, size)
            self.vector(f"{path}.{name}.bias", rows)
        self.matrix(f"{path}.o_proj", size, wide)
        for name in ("q_norm", "k_norm") if self.config.get("use_qk_norm") else ():
            self.norm(f"{path}.{name}", head)

    def _latent(self, path, size):
        c, heads = self.config, self.config["num_attention_heads"]
        self.matrix(f"{path}.q_a_proj", c["q_lora_rank"], size)
        self.norm(f"{path}.q_a_layernorm", c["q_lora_rank"])
        self.matrix(f"{path}.q_b_proj", heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]), c["q_lora_rank"])
        self.matrix(f"{path}.kv_a_proj_with_mqa", c["kv_lora_rank"] + c["qk_rope_head_dim"], size)
        self.norm(f"{path}.kv_a_layernorm", c["kv_lora_rank"])
        self.matrix(f"{path}.kv_b_proj", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"])
        self.matrix(f"{path}.o_proj", size, heads * c["v_head_dim"])


def raw_family(family, seed=5):
    """(tensors of the trunk, tensors of the head), by their original names."""
    drawn, c = Drawn(family, seed), CONFIGS[family]
    for layer in range(c["num_hidden_layers"]):
        drawn.layer(f"model.layers.{layer}", "n_routed_experts" not in c or layer < c["first_k_dense_replace"])
    drawn.matrix("model.embed_tokens", c["vocab_size"], c["hidden_size"], size=8.0)
    drawn.norm("model.norm", c["hidden_size"])
    drawn.matrix("lm_head", c["vocab_size"], c["hidden_size"])
    trunk, drawn.tensors = drawn.tensors, {}
    path, names = NAMES[family]
    drawn.layer(path, "n_routed_experts" not in c)
    drawn.matrix(f"{path}.{names['fc']}", c["hidden_size"], 2 * c["hidden_size"])
    for part in ("token", "state", "norm"):
        drawn.norm(f"{path}.{names[part]}", c["hidden_size"])
    if "eh_proj" in names.values():  # copies of the target's own
        drawn.tensors[f"{path}.embed_tokens.weight"] = trunk["model.embed_tokens.weight"]
        drawn.tensors[f"{path}.shared_head.head.weight"] = trunk["lm_head.weight"]
    if family == "glm4_moe_lite":  # whose output head is its own
        drawn.matrix(f"{path}.shared_head.head", c["vocab_size"], c["hidden_size"])
    return trunk, drawn.tensors
