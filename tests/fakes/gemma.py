"""A tiny Gemma 4 target and its assistant, from folders as the product reads them, or one that agrees."""

from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from conformance.architectures import architectures, draw_weight, tiny_network
from fakes.chat import BYTES
from fakes.counting import TEMPLATE
from fakes.heads import quieten
from fakes.models import byte_tokenizer, write_tokenizer
from fakes.raw_gemma import (
    COMMON,
    FULL,
    SIZE,
    SLIDING,
    assistant_config,
    assistant_tensors,
    target_config,
    target_tensors,
)
from fakes.raw_qwen import write_checkpoint
from specdec_cli.engine.heads.assistant import ASSISTANT_BUILD
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.load import load
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.selftest import random_network, redraw
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import read_head


def small_gemma(seed=1, noise=0.0):
    """A network whose laws can be enumerated, with a window of four; `noise` perturbs one of the same seed."""
    return random_network(SMALL, seed, partial(draw_weight, gain=1.5, noise=noise))


def gemma_target(folder, kind, kv_bits=None):
    """A CachedModel."""
    folder = write_checkpoint(folder / kind, target_tensors(kind), target_config(kind))
    return load(read_checkpoint(folder, kind), kv_bits)


def assistant_folder(folder, kind, tensors=None, config=None):
    """An assistant's folder; `tensors` and `config` in place of its own."""
    tensors = assistant_tensors(kind) if tensors is None else tensors
    return write_checkpoint(folder, tensors, assistant_config(kind) if config is None else config)


def cached_assistant(folder, target, kind, **own):
    """One conversation's assistant over `target`, which nobody asked whether they agree."""
    files = read_head(assistant_folder(folder / f"{kind}-assistant", kind, **own), "assistant")
    return CachedHead(Head(load_head(files, SIZE), target.network, "assistant", recent=files.recent))


SMALL = {
    "model_type": "gemma4_text",
    "vocab_size": 16,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 16,
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 0,
    "sliding_window": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
# Gemma norms at last what layers add to the stream of activations.
ADDING = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight", "post_per_layer_input_norm.weight")


def config_over(text, clusters=0, best=0):
    """The configuration of an assistant as wide as a target of the arguments `text`."""
    own = {"layer_types": [SLIDING, FULL], "num_hidden_layers": 2, "hidden_size_per_layer_input": 0}
    own |= {"use_double_wide_mlp": False, "enable_moe_block": False, "num_kv_shared_layers": 2}
    return {
        "model_type": "gemma4_assistant",
        "dtype": "float32",
        "backbone_hidden_size": text.hidden_size,
        "use_ordered_embeddings": bool(clusters),
        "num_centroids": clusters,
        "centroid_intermediate_top_k": best,
        "tie_word_embeddings": True,
        "text_config": asdict(text) | own,
    }


def agreeing_assistant(target, share=0.5, clusters=0, best=0, seed=3):
    """A conversation's assistant, as wide as `target`, that says what the token before it makes likely.

    `share` of the state and of the layers of both disturbs that. It scores the `best` of so many `clusters`, 0: all
    tokens.
    """
    quieten(target.network.module, share, ADDING)
    modules = dict(target.network.module.named_modules())
    trunk = next(part for part in modules.values() if part.get("previous_kvs") is not None)
    text = trunk.config
    rows = next(part for path, part in modules.items() if path.endswith("lm_head")).weight
    size = text.hidden_size
    module = ASSISTANT_BUILD.head(config_over(text, clusters, best), True, size)
    order = mx.random.permutation(text.vocab_size, key=mx.random.key(seed)).astype(mx.int32)
    redraw(module, seed, partial(draw_weight, gain=1.0, noise=0.0))
    module.pre_projection.weight = mx.concatenate(
        [mx.eye(size), share * module.pre_projection.weight[:, size:]], axis=1
    )
    module.model.embed_tokens.weight, module.model.norm.weight = rows, trunk.norm.weight
    if clusters:
        module.masked_embedding.token_ordering = order
        module.masked_embedding.centroids.weight = rows[order].reshape(clusters, -1, size).mean(1)
    quieten(module, share, ADDING)
    mx.eval(module.parameters())
    return CachedHead(Head(module, target.network, "assistant", recent=1))


def agreeing_folders(root, clusters=37, best=12, share=0.5):
    """(a target over bytes that the product can load, the folder of an assistant that agrees with it)."""
    listed = architectures()["gemma4"]
    text = dict(listed.config["text_config"]) | {"vocab_size": BYTES, "vocab_size_per_layer_input": BYTES}
    text |= {"tie_word_embeddings": False, "rope_parameters": COMMON["rope_parameters"]}
    config = dict(listed.config) | {"vocab_size": BYTES, "text_config": text, "eos_token_id": [2, 0]}
    network = tiny_network(replace(listed, config=deepcopy(config)), 3)
    trunk = network.language_model.model
    trunk.embed_tokens.weight = 8 * trunk.embed_tokens.weight
    target = CachedModel(network, "t")
    module = agreeing_assistant(target, share, clusters, best).head.module
    folders = root / "target", root / "assistant"
    for folder, part, values in zip(
        folders, (network, module), (config, config_over(trunk.config, clusters, best)), strict=True
    ):
        tensors = {name: np.array(value) for name, value in tree_flatten(part.parameters())}
        write_checkpoint(folder, tensors, values | {"dtype": "float32"}, metadata={"format": "mlx"})
    write_tokenizer(folders[0], byte_tokenizer(), chat_template=TEMPLATE)
    return folders
