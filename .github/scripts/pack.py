"""pack.py FOLDER DTYPE: the demo pair in 4 bits with scales of that type, as FOLDER/target and FOLDER/draft."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

import specdec_cli

DEMO = Path(specdec_cli.__file__).parent / "demo"

for part in ("target", "draft"):
    folder, dtype = Path(sys.argv[1]) / part, sys.argv[2]
    shutil.copytree(DEMO / part, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    network, config = load_model(DEMO / part)
    network.set_dtype(getattr(mx, dtype))
    network, config = quantize_model(network, config | {"dtype": dtype}, 64, 4)
    save_model(folder, network)
    save_config(config, folder / "config.json")
