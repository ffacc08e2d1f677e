"""Checkpoint -> network. What can be refused without weights is refused first: every architecture is listed.

The list has every text decoder of the installed mlx-lm, as tested or with the reason why not.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.models
from mlx_lm.utils import MODEL_REMAPPING, _get_classes, load_model
from safetensors import SafetensorError, safe_open

from specdec_cli.engine import device
from specdec_cli.engine.failure import device_failure
from specdec_cli.engine.model import CachedModel
from specdec_cli.errors import NotAvailable, Refused, reason, untrusted
from specdec_cli.models.checkpoint import Checkpoint

MODEL = re.compile(r"^(class|from .* import) .*\bModel\b", re.M)
LISTS = ("a_g.toml", "h_m.toml", "n_z.toml")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One module of `mlx_lm.models` and a tiny `config` for it.

    `window` is how many positions its shortest window or chunk holds (None without one), `gain` scales the random
    weights, `noise` moves a draft made of it away, `metal_only`: mlx-lm has no other code for it, `refused`: the reason
    that specdec does not speculate with it.
    """

    name: str
    config: Mapping[str, Any]
    window: int | None = None
    gain: float = 1.0
    noise: float = 0.1
    metal_only: bool = False
    refused: str | None = None


@cache
def architectures() -> dict[str, Architecture]:
    """All listed architectures by module name."""
    found: dict[str, Architecture] = {}
    for name in LISTS:
        entries = tomllib.loads(files(__package__).joinpath("architectures_data", name).read_text("utf-8"))
        found |= {module: Architecture(module, **{"config": {}, **entry}) for module, entry in entries.items()}
    return found


def installed() -> list[str]:
    """Modules of the installed mlx-lm that define a model class. Read, not imported: one of them exits on import."""
    sources = {file.name.removesuffix(".py"): file for file in files(mlx_lm.models).iterdir()}
    return sorted(name for name, file in sources.items() if file.is_file() and MODEL.search(file.read_text("utf-8")))


def architecture_of(checkpoint: Checkpoint) -> Architecture | None:
    """The listed one; None for a model that mlx-lm learned later."""
    return architectures().get(MODEL_REMAPPING.get(checkpoint.model_type, checkpoint.model_type))


def require_verifiable(checkpoint: Checkpoint) -> None:
    """Raises: Refused for an architecture whose drafts cannot be checked in one pass; plain decoding works."""
    listed = architecture_of(checkpoint)
    if listed and listed.refused:
        raise Refused(
            f"{checkpoint.name} ({checkpoint.model_type}): {listed.refused}", "decode it plainly: --drafter none"
        )


def empty_model(checkpoint: Checkpoint, kv_bits: int | None = None) -> CachedModel:
    """The architecture ready to run, without weights of its own: for its shapes, its caches and its refusals.

    Raises: NotAvailable if the installed mlx-lm has no such architecture or none for this device, Refused for caches
    that cannot be rolled back or quantized.
    """
    network = blank_network(checkpoint)
    with untrusted(
        lambda reason: NotAvailable(
            f"{checkpoint.name} ({checkpoint.model_type}) does not run on this device: {reason}",
            "mlx-lm's code for it may need a Mac; specdec doctor says what computes here",
        )
    ):
        return CachedModel(network, checkpoint.name, checkpoint.context_limit, kv_bits, recent=checkpoint.recent)


def blank_network(checkpoint: Checkpoint) -> nn.Module:
    """The architecture with its initial weights. Lazy: none is allocated before something is evaluated.

    Raises: NotAvailable if the installed mlx-lm has no such architecture or the configuration does not fit it.
    """
    unknown = NotAvailable(
        f"{checkpoint.name} is of type {checkpoint.model_type}, which the installed mlx-lm does not support",
        "upgrade mlx-lm, or use a model type that it supports",
    )
    with untrusted(lambda reason: unknown):
        model_class, args_class = _get_classes(dict(checkpoint.config))
    with untrusted(lambda reason: _does_not_load(checkpoint, reason)):
        return model_class(args_class.from_dict(dict(checkpoint.config)))


def load(checkpoint: Checkpoint, kv_bits: int | None = None) -> CachedModel:
    """The checkpoint's network, evaluated, with empty caches.

    Raises: NotAvailable for an unsupported type or damaged weights; Refused for caches that cannot be quantized;
    DoesNotFit where the device has no memory for the weights.
    """
    network = load_network(checkpoint)
    return CachedModel(
        network,
        checkpoint.name,
        checkpoint.context_limit,
        kv_bits,
        lambda: _lazy_network(checkpoint).parameters(),
        checkpoint.recent,
    )


def load_network(checkpoint: Checkpoint) -> nn.Module:
    """The network with its weights in memory.

    A configuration that declares float32 is computed in float32, also where the weights are stored in 16 bits.
    """
    network = _lazy_network(checkpoint)
    try:
        device.read_weights(network)
    except RuntimeError as error:
        raise device_failure(error) or _does_not_load(checkpoint, reason(error)) from error
    return network


def _lazy_network(checkpoint: Checkpoint) -> nn.Module:
    """The network, whose weights are read from disk when they are first needed."""
    for path in checkpoint.weights:
        try:
            with safe_open(path, framework="np"):
                pass
        except (SafetensorError, OSError) as error:
            raise NotAvailable(
                f"{path.name} of {checkpoint.name} is damaged ({path.stat().st_size} bytes): {error}",
                "delete the file and download it again",
            ) from error
    with untrusted(lambda reason: _does_not_load(checkpoint, reason)):
        network, _ = load_model(checkpoint.folder, lazy=True)
    if checkpoint.config.get("dtype", checkpoint.config.get("torch_dtype")) == "float32":
        network.set_dtype(mx.float32)
    return network


def _does_not_load(checkpoint: Checkpoint, reason: str) -> NotAvailable:
    return NotAvailable(
        f"{checkpoint.name} ({checkpoint.model_type}) does not load: {reason}",
        "the weights and config.json disagree; download the model again",
    )
