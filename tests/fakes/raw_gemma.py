"""Tiny Gemma 4 checkpoints and their assistants as repositories store them, with random weights.

numpy alone, so that another runtime's environment draws the very same weights from the same seed. Two kinds: "e" shares
keys and values between layers, and its assistant scores clusters of tokens; "unified" has keys for values in its full
layers, and an assistant that scores every token.
"""

import numpy as np

VOCABULARY, SIZE, OWN_SIZE, WINDOW, CLUSTERS, BEST = 128, 64, 32, 16, 16, 5
SLIDING, FULL = "sliding_attention", "full_attention"
COMMON = {
    "model_type": "gemma4_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    "sliding_window": WINDOW,
    "max_position_embeddings": 1024,
    # Runtimes have other defaults for what is not said.
    "rope_parameters": {
        FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
        SLIDING: {"rope_theta": 1e4, "rope_type": "default"},
    },
    "final_logit_softcapping": 30.0,
    "enable_moe_block": False,
    "hidden_size": SIZE,
    "intermediate_size": 64,
}
TEXTS = {
    "e": COMMON
    | {
        "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
        "num_kv_shared_layers": 3,
        "hidden_size_per_layer_input": 16,
        "use_double_wide_mlp": True,
        "attention_k_eq_v": False,
    },
    "unified": COMMON
    | {
        "layer_types": [SLIDING, SLIDING, FULL, FULL],
        "num_kv_shared_layers": 0,
        "num_global_key_value_heads": 1,
        "hidden_size_per_layer_input": 0,
        "use_double_wide_mlp": False,
        "attention_k_eq_v": True,
    },
}
ASSISTANTS = {"e": "gemma4_assistant", "unified": "gemma4_unified_assistant"}


def text_of(kind):
    """The language model's configuration."""
    return TEXTS[kind] | {"num_hidden_layers": len(TEXTS[kind]["layer_types"])}


def target_config(kind):
    model_type = {"e": "gemma4", "unified": "gemma4_unified"}[kind]
    return {"model_type": model_type, "dtype": "float32", "vocab_size": VOCABULARY, "text_config": text_of(kind)}


def assistant_config(kind):
    own = {
        "hidden_size": OWN_SIZE,
        "intermediate_size": 48,
        "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 4,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "use_double_wide_mlp": False,
    }
    return {
        "model_type": ASSISTANTS[kind],
        "dtype": "float32",
        "backbone_hidden_size": SIZE,
        "use_ordered_embeddings": kind == "e",
        "num_centroids": CLUSTERS,
        "centroid_intermediate_top_k": BEST,
        "tie_word_embeddings": True,
        "text_config": text_of(kind) | own,
    }


class _Drawn:
    def __init__(self, seed):
        self._drawn = np.random.Generator(np.random.PCG64(seed))

    def matrix(self, rows, columns, gain=1.0):
        return (gain * self._drawn.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    def norm(self, size):
        return (1 + 0.2 * self._drawn.standard_normal(size)).astype(np.float32)

    def order(self, size):
        return self._drawn.permutation(size).astype(np.int64)


def _layers(path, text, drawn, keys):
    """Of layers below `path`; the first `keys` of them have keys and values of their own."""
    size, found = text["hidden_size"], {}
    for at, kind in enumerate(text["layer_types"]):
        here, full = f"{path}.layers.{at}", kind == FULL
        head = text["global_head_dim"] if full else text["head_dim"]
        alike = text["attention_k_eq_v"] and full
        heads = text.get("num_global_key_value_heads") if alike else None
        few, wide = head * (heads or text["num_key_value_heads"]), head * text["num_attention_heads"]
        inner = text["intermediate_size"] * (2 if text["use_double_wide_mlp"] and at >= keys > 0 else 1)
        attention = {"q_proj.weight": drawn.matrix(wide, size), "q_norm.weight": drawn.norm(head)}
        attention |= {"o_proj.weight": drawn.matrix(size, wide)}
        if at < keys:
            attention |= {"k_proj.weight": drawn.matrix(few, size), "k_norm.weight": drawn.norm(head)}
            attention |= {} if alike else {"v_proj.weight": drawn.matrix(few, size)}
        found |= {f"{here}.self_attn.{name}": value for name, value in attention.items()}
        for name, shape in (("gate", (inner, size)), ("up", (inner, size)), ("down", (size, inner))):
            found[f"{here}.mlp.{name}_proj.weight"] = drawn.matrix(*shape)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            found[f"{here}.{name}_layernorm.weight"] = drawn.norm(size)
        found[f"{here}.layer_scalar"] = drawn.norm(1)
        if inputs := text["hidden_size_per_layer_input"]:
            found[f"{here}.per_layer_input_gate.weight"] = drawn.matrix(inputs, size)
            found[f"{here}.per_layer_projection.weight"] = drawn.matrix(size, inputs)
            found[f"{here}.post_per_layer_input_norm.weight"] = drawn.norm(size)
    return found


def target_tensors(kind, seed=5):
    """Every tensor of the target, as conversions for mlx-lm name them."""
    text, drawn, path = text_of(kind), _Drawn(seed), "language_model.model"
    layers = len(text["layer_types"])
    found = _layers(path, text, drawn, layers - text["num_kv_shared_layers"])
    found[f"{path}.embed_tokens.weight"] = drawn.matrix(VOCABULARY, SIZE, gain=1.2)
    found[f"{path}.norm.weight"] = drawn.norm(SIZE)
    if inputs := text["hidden_size_per_layer_input"]:
        found[f"{path}.embed_tokens_per_layer.weight"] = drawn.matrix(VOCABULARY, layers * inputs)
        found[f"{path}.per_layer_model_projection.weight"] = drawn.matrix(layers * inputs, SIZE)
        found[f"{path}.per_layer_projection_norm.weight"] = drawn.norm(inputs)
    return found


def assistant_tensors(kind, seed=7):
    """Every tensor of the assistant."""
    text, drawn = assistant_config(kind)["text_config"], _Drawn(seed)
    found = _layers("model", text, drawn, 0)
    found["model.embed_tokens.weight"] = drawn.matrix(VOCABULARY, OWN_SIZE, gain=3.0)
    found["model.norm.weight"] = drawn.norm(OWN_SIZE)
    found["pre_projection.weight"] = drawn.matrix(OWN_SIZE, 2 * SIZE)
    found["post_projection.weight"] = drawn.matrix(SIZE, OWN_SIZE)
    if kind == "e":
        found["masked_embedding.centroids.weight"] = drawn.matrix(CLUSTERS, OWN_SIZE)
        found["masked_embedding.token_ordering"] = drawn.order(VOCABULARY)
    return found
