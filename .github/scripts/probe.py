"""probe.py FILE [--gpu]: versions, device, and whether one and the same pass gives the same bits 20 times."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import load_model

import specdec_cli

PASSES = 20


def same_bits(part: str) -> bool:
    """Whether a 4-bit bfloat16 pass of that demo model over 16 tokens gives the same logits each time."""
    network, _ = load_model(Path(specdec_cli.__file__).parent / "demo" / part)
    network.set_dtype(mx.bfloat16)
    nn.quantize(network, group_size=64, bits=4)
    tokens = mx.arange(8, 24)[None]
    first, *others = (network(tokens).astype(mx.float32) for _ in range(PASSES))
    return all(bool(mx.array_equal(first, other)) for other in others)


def main(file: str, *options: str) -> str | None:
    """The two lines of an error, or None."""
    device = str(mx.default_device())
    if "--gpu" in options and not device.startswith("Device(gpu"):
        return f"error: this machine has no GPU that mlx can use: {device}\nhint: run this job on a Mac with Metal"
    # mlx's CPU is a hundred times slower in 4 bits of bfloat16, and nobody doubts it: one layer will do.
    same = same_bits("target" if device.startswith("Device(gpu") else "draft")
    found = {
        "device": device,
        "info": {name: str(value) for name, value in mx.device_info().items()},
        "system": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("specdec-cli", "mlx", "mlx-lm")},
        "forced_architecture": os.environ.get("MLX_METAL_GPU_ARCH"),
        "passes": PASSES,
        "deterministic": same,
    }
    text = json.dumps(found, indent=1)
    Path(file).write_text(text + "\n", "utf-8")
    print(text)
    if outputs := os.environ.get("GITHUB_OUTPUT"):
        with Path(outputs).open("a", encoding="utf-8") as stream:
            stream.write(f"deterministic={str(same).lower()}\n")
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
