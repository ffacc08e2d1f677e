"""Tiny checkpoints packed into few bits by mlx-lm itself, as a conversion would be."""

import json
import shutil

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, quantize_model


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
