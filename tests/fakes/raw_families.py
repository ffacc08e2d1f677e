"""Tiny checkpoints of families beyond Qwen's, as their original repositories store them; drawn with numpy alone.

And an oracle that shares no code: MTP heads from the published equations, in numpy and float64, without a cache.
DeepSeek-V3 (arXiv:2412.19437): attention over latents in section 2.1.1, the experts in 2.1.2 (equations 12 to 16, and
its node-limited routing), the head in 2.2 (equations 21 to 23), all unfolded as written there. GLM-4.5 and MiMo have
grouped-query attention in place of latents. Rotary positions are relative, so they start at 0.
"""

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


# The oracle.


FIRST = {"mimo": "state"}  # all others join token and state in this order
CARRIES_RAW = {"deepseek_v3"}


class PlainHead:
    def __init__(self, family, tensors):
        self.family, self.config = family, CONFIGS[family]
        self.path, self.names = NAMES[family]
        self._tensors = {name: value.astype(np.float64) for name, value in tensors.items()}

    def get(self, name):
        return self._tensors[f"{self.path}.{name}"]

    def linear(self, x, name):
        bias = self._tensors.get(f"{self.path}.{name}.bias", 0.0)
        return x @ self.get(f"{name}.weight").T + bias

    def norm(self, x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.get(f"{name}.weight")

    def proposals(self, embedding, output_head, context, hidden, k):
        """(the k best tokens after `context`, the least lead of one over the second); `hidden` [T - 1, D]."""
        tokens, leads = list(context[1:]), []
        for _ in range(k):
            parts = [self.norm(embedding[tokens], self.names["token"]), self.norm(hidden, self.names["state"])]
            joined = np.concatenate(parts[::-1] if FIRST.get(self.family) == "state" else parts, axis=-1)
            raw = self.layer(self.linear(joined, self.names["fc"]))
            out = self.norm(raw, self.names["norm"])
            scores = output_head @ out[-1]
            leads.append(np.diff(np.sort(scores)[-2:])[0])
            tokens.append(int(scores.argmax()))
            hidden = np.concatenate([hidden, (raw if self.family in CARRIES_RAW else out)[-1:]])
        return tokens[-k:], min(leads)

    def layer(self, x):
        attention = self.latent if "kv_lora_rank" in self.config else self.grouped
        x = x + attention(self.norm(x, "input_layernorm"))
        inner = self.norm(x, "post_attention_layernorm")
        return x + (self.experts(inner) if "n_routed_experts" in self.config else self.gated(inner, "mlp"))

    def gated(self, x, name):
        gate = self.linear(x, f"{name}.gate_proj")
        return self.linear(gate / (1 + np.exp(-gate)) * self.linear(x, f"{name}.up_proj"), f"{name}.down_proj")

    def experts(self, x):
        """Equations 12 to 16: affinities are sigmoids, the bias decides on the choice and not on the weight."""
        c = self.config
        affinity = 1 / (1 + np.exp(-self.linear(x, "mlp.gate")))
        biased = affinity + self.get("mlp.gate.e_score_correction_bias")
        found = self.gated(x, "mlp.shared_experts")
        for row in range(len(x)):
            groups = np.sort(biased[row].reshape(c["n_group"], -1))[:, -2:].sum(-1)
            members = np.repeat(groups >= np.sort(groups)[-c["topk_group"]], c["n_routed_experts"] // c["n_group"])
            chosen = np.argsort(np.where(members, biased[row], -np.inf))[-c["num_experts_per_tok"] :]
            weights = affinity[row, chosen] / affinity[row, chosen].sum() * c["routed_scaling_factor"]
            for expert, weight in zip(chosen, weights, strict=True):
                found[row] += weight * self.gated(x[row], f"mlp.experts.{expert}")
        return found

    def latent(self, x):
        """Keys and values of every head are made of the latent, as in training: nothing is absorbed."""
        c, heads, rows = self.config, self.config["num_attention_heads"], len(x)
        plain, turned = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        queries = self.linear(self.norm(self.linear(x, "self_attn.q_a_proj"), "self_attn.q_a_layernorm"),
                              "self_attn.q_b_proj").reshape(rows, heads, plain + turned)  # fmt: skip
        both = self.linear(x, "self_attn.kv_a_proj_with_mqa")
        latent = self.norm(both[:, : c["kv_lora_rank"]], "self_attn.kv_a_layernorm")
        unfolded = self.linear(latent, "self_attn.kv_b_proj").reshape(rows, heads, plain + c["v_head_dim"])
        shared = rotated(both[:, None, c["kv_lora_rank"] :], turned, c["rope_theta"], pairs=True)
        keys = np.concatenate([unfolded[..., :plain], np.repeat(shared, heads, axis=1)], axis=-1)
        turned_queries = rotated(queries[..., plain:], turned, c["rope_theta"], pairs=True)
        queries = np.concatenate([queries[..., :plain], turned_queries], axis=-1)
        return self.linear(attended(queries, keys, unfolded[..., plain:]), "self_attn.o_proj")

    def grouped(self, x):
        c, heads, few = self.config, self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size = c.get("head_dim", c["hidden_size"] // heads)
        made = {name: self.linear(x, f"self_attn.{name}_proj").reshape(len(x), -1, size) for name in "qkv"}
        if c.get("use_qk_norm"):
            made |= {name: self.norm(made[name], f"self_attn.{name}_norm") for name in "qk"}
        width = int(size * c.get("partial_rotary_factor", 1.0))
        queries, keys = (rotated(made[name], width, c["rope_theta"]) for name in "qk")
        keys, values = (np.repeat(one, heads // few, axis=1) for one in (keys, made["v"]))
        return self.linear(attended(queries, keys, values), "self_attn.o_proj")


def rotated(x, width, base, pairs=False):
    """`x` [T, heads, size] with its first `width` channels turned by position: in pairs of neighbours, or of halves."""
    angles = np.outer(np.arange(len(x)), base ** (-np.arange(0, width, 2) / width))[:, None]
    turning, rest = x[..., :width], x[..., width:]
    first, second = (turning[..., ::2], turning[..., 1::2]) if pairs else np.split(turning, 2, axis=-1)
    found = [first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)]
    joined = np.stack(found, axis=-1).reshape(turning.shape) if pairs else np.concatenate(found, axis=-1)
    return np.concatenate([joined, rest], axis=-1)


def attended(queries, keys, values):
    """[T, heads x size] of [T, heads, size] each, causal."""
    scores = np.einsum("qhd,khd->hqk", queries, keys) / np.sqrt(queries.shape[-1])
    scores = np.where(np.tri(len(queries), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, values).reshape(len(queries), -1)
