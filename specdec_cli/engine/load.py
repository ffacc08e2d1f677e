"""Checkpoint -> network. Weights are checked against their headers first."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import _get_classes, load_model
from safetensors import SafetensorError, safe_open

from specdec_cli.engine.architectures import refusal
from specdec_cli.engine.failure import device_failure
from specdec_cli.engine.model import CachedModel
from specdec_cli.errors import NotAvailable, Refused, reason, untrusted
from specdec_cli.models.checkpoint import Checkpoint


def require_runnable(checkpoint: Checkpoint, kv_bits: int | None = None) -> None:
    """Check everything that can be refused without weights: the architecture, its caches, the kernels it needs.

    Raises: NotAvailable if the installed mlx-lm has no such architecture or none for this device, Refused for caches
    that cannot be rolled back or quantized.
    """
    empty_model(checkpoint, kv_bits)


def require_verifiable(checkpoint: Checkpoint) -> None:
    """Raises: Refused for an architecture whose drafts cannot be checked in one pass; plain decoding works."""
    reason = refusal(checkpoint.model_type)
    if reason:
        raise Refused(f"{checkpoint.name} ({checkpoint.model_type}): {reason}", "decode it plainly: --drafter none")


def empty_model(checkpoint: Checkpoint, kv_bits: int | None = None) -> CachedModel:
    """The architecture ready to run, without weights of its own: for its shapes, its caches and its refusals.

    Raises: as `require_runnable`.
    """
    network = blank_network(checkpoint)
    with untrusted(lambda reason: _does_not_run(checkpoint, reason)):
        return CachedModel(network, checkpoint.name, checkpoint.context_limit, kv_bits)


def blank_network(checkpoint: Checkpoint) -> nn.Module:
    """The architecture with its initial weights. Lazy: none is allocated before something is evaluated.

    Raises: NotAvailable if the installed mlx-lm has no such architecture or the configuration does not fit it.
    """
    model_class, args_class = _classes(checkpoint)
    with untrusted(lambda reason: _does_not_load(checkpoint, reason)):
        return model_class(args_class.from_dict(dict(checkpoint.config)))


def _classes(checkpoint: Checkpoint) -> tuple[type, Any]:
    """mlx-lm's class of the network, and that of its configuration. Raises: NotAvailable if it has none."""
    unknown = NotAvailable(
        f"{checkpoint.name} is of type {checkpoint.model_type}, which the installed mlx-lm does not know",
        "upgrade mlx-lm, or use a model type that it lists",
    )
    with untrusted(lambda reason: unknown):
        model_class, args_class = _get_classes(dict(checkpoint.config))
    return model_class, args_class


def load(checkpoint: Checkpoint, kv_bits: int | None = None) -> CachedModel:
    """The checkpoint's network, evaluated, with empty caches.

    Raises: NotAvailable for an unsupported type or damaged weights; Refused for caches that cannot be quantized;
    DoesNotFit where the device has no memory for the weights.
    """
    network = load_network(checkpoint)
    return CachedModel(
        network, checkpoint.name, checkpoint.context_limit, kv_bits, lambda: _lazy_network(checkpoint).parameters()
    )


def load_network(checkpoint: Checkpoint) -> nn.Module:
    """The network with its weights in memory.

    A configuration that declares float32 is computed in float32, also where the weights are stored in 16 bits.
    """
    network = _lazy_network(checkpoint)
    try:
        mx.eval(network.parameters())
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


def _does_not_run(checkpoint: Checkpoint, reason: str) -> NotAvailable:
    return NotAvailable(
        f"{checkpoint.name} ({checkpoint.model_type}) does not run on this device: {reason}",
        "mlx-lm's code for it may need a Mac; specdec doctor tells what computes here",
    )
