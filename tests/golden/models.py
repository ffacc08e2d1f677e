"""Tiny random models as folders on disk, each a target with its draft; one has an MTP head.

Weights are numpy's, so that they stay the same with another mlx.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3

from fakes import raw_families
from fakes.counting import ADDING
from fakes.models import TINY, byte_tokenizer, write_tokenizer
from fakes.raw_qwen import write_checkpoint

QWEN = {name: value for name, value in TINY.items() if name != "dtype"}
QWEN |= {"num_hidden_layers": 3, "intermediate_size": 128, "max_position_embeddings": 1024}
QWEN |= {"rope_theta": 1000000.0, "tie_word_embeddings": True}


def model_folders(name: str, root: Path) -> dict[str, str]:
    """`target`, `draft` (agrees now and then) and, of deepseek_v3, `head`."""
    found = {}
    made = {"qwen3": _dense, "deepseek_v3": _latent}[name]
    for part, (tensors, config) in made(name).items():
        found[part] = str(write_checkpoint(root / part, tensors, config))
        write_tokenizer(root / part, byte_tokenizer())
    return found


def _dense(name):
    """mlx-lm's own module with every parameter drawn anew; the draft's matrices are moved by a tenth of them."""
    network = qwen3.Model(qwen3.ModelArgs.from_dict(QWEN))
    shapes = sorted(tree_flatten(network.parameters()))
    return {part: (_drawn(shapes, noise), QWEN) for part, noise in {"target": 0.0, "draft": 0.1}.items()}


def _drawn(shapes, noise):
    luck, tensors = np.random.Generator(np.random.PCG64(1)), {}
    for path, value in shapes:
        start = np.array(value.astype(mx.float32))
        one, other = luck.standard_normal(start.shape), luck.standard_normal(start.shape)
        drawn = np.round(start) + 0.1 * one if start.ndim < 2 else 3.0 / start.shape[-1] ** 0.5 * (one + noise * other)
        tensors[path] = drawn.astype(np.float32)
    return tensors


def _latent(name, share=0.1):
    """A DeepSeek V3 whose last token decides a good part of the next, as its head believes too."""
    with patch.dict(raw_families.CONFIGS[name], vocab_size=259):
        (trunk, head), (other, _) = (raw_families.raw_family(name, seed) for seed in (5, 6))
        config = raw_families.CONFIGS[name] | {"eos_token_id": [2, 0]}
    for tensors in (trunk, head, other):
        for path in tensors:
            if path.endswith(ADDING):
                tensors[path] = (share * tensors[path]).astype(np.float32)
    size, path = config["hidden_size"], "model.layers.2"
    token, state = np.split(head[f"{path}.eh_proj.weight"], 2, axis=1)
    head[f"{path}.eh_proj.weight"] = np.concatenate([np.eye(size) + share * token, share * state], 1).astype(np.float32)
    trunk["model.norm.weight"] = np.ones(size, np.float32)
    for norm in ("enorm", "shared_head.norm"):
        head[f"{path}.{norm}.weight"] = np.ones(size, np.float32)
    draft = {path: (trunk[path] + 0.15 * other[path]).astype(np.float32) for path in trunk}
    return {"target": (trunk, config), "draft": (draft, config), "head": (head, config)}
