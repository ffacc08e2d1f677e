"""Tiny random models as folders on disk: one for each kind of cache, two of them with an MTP head.

Weights are numpy's, so that they stay the same with another mlx. Two more have released vocabularies, true in size.
"""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes
from safetensors.numpy import save_file

from fakes import raw_families
from fakes.counting import ADDING, CONFIG, NO_HEAD, counting_tensors, head_or_trunk
from fakes.models import byte_tokenizer, write_tokenizer
from fakes.raw_qwen import write_checkpoint

LISTED = json.loads(Path(__file__).with_name("architectures.json").read_text("utf-8"))
HEADED = ("qwen3_5", "deepseek_v3")
ALL = (*LISTED, *HEADED)
TRUE_SIZES = ("qwen3-151936", "gemma3-262144")


def model_folders(name: str, root: Path) -> dict[str, str]:
    """`target`, `draft` (agrees now and then) and, where there is an MTP head, `whole` (target and head) or `head`."""
    found = {}
    made = {"qwen3_5": _counting, "deepseek_v3": _latent}.get(name) or _random
    for part, (tensors, config) in made(name).items():
        found[part] = str(write_checkpoint(root / part, tensors, config))
        write_tokenizer(root / part, byte_tokenizer())
    return found


def _random(name):
    """mlx-lm's own module with every parameter drawn anew; the draft's matrices are moved by a share of them."""
    listed = LISTED[name]
    model_class, args_class = _get_classes(listed["config"])
    network = model_class(args_class.from_dict(listed["config"]))
    shapes = sorted(tree_flatten(network.parameters()))
    return {
        part: (_drawn(shapes, listed["gain"], noise), listed["config"])
        for part, noise in {"target": 0.0, "draft": listed["noise"]}.items()
    }


def _drawn(shapes, gain, noise):
    luck, tensors = np.random.Generator(np.random.PCG64(1)), {}
    for path, value in shapes:
        shape, start = value.shape, np.array(value.astype(mx.float32))
        one, other = luck.standard_normal(shape), luck.standard_normal(shape)
        if path.endswith("A_log"):  # decays that remember more than a position or two
            drawn = luck.uniform(-3.0, 0.0, shape)
        elif path.endswith(("recurrent_param", "w_lora.lora.2.bias")):
            drawn = luck.uniform(-5.0, -2.0, shape)
        elif path.endswith((".x_r", ".x_w", ".x_k", ".x_v", ".x_a", ".x_g")):
            drawn = luck.uniform(0.0, 1.0, shape)
        elif value.ndim < 2:  # norms, biases; mlx may start a few of them random
            drawn = (0.0 if path.endswith("bias") else np.round(start)) + 0.1 * one
        else:
            drawn = gain / shape[-1] ** 0.5 * (one + noise * other)
        tensors[path] = drawn.astype(np.float32)
    return tensors


def _counting(_):
    """A Qwen3.5 that counts and a head that counts with it; the draft is a worse one without a head."""
    return {
        "target": (head_or_trunk(counting_tensors(), False), NO_HEAD),
        "draft": (head_or_trunk(counting_tensors(noise=0.6), False), NO_HEAD),
        "whole": (counting_tensors(), CONFIG),
    }


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


def true_sized_folders(name: str, root: Path) -> dict[str, str]:
    """`target` and `draft`, one small layer each, under a released tokenizer; skips where that cannot be had."""
    from real import released

    vocabulary = released.VOCABULARIES[name.partition("-")[0]]
    files, found = released.had(released.tokenizer_files, vocabulary), {}
    for part, noise in {"target": 0.0, "draft": 0.1}.items():
        folder = released.random_network(root / part, files, vocabulary.entries)
        shapes = sorted(mx.load(str(folder / "model.safetensors")).items())
        save_file(_drawn(shapes, 3.0, noise), folder / "model.safetensors")
        found[part] = str(folder)
    return found
