"""A loaded target with an error of known size in its logits, and tiny models in every precision."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn

from conformance.architectures import Architecture, architectures
from conformance.architectures import tiny_network as make_network
from fakes.models import TINY, tiny_network, write_model
from specdec_cli.engine.cache.cache_kinds import leaves
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.hidden import hook
from specdec_cli.engine.model import Network
from specdec_cli.session.session import Session

MOST_ROWS = 17


def precise_folder(folder: Path, dtype: str, bits: int | None = None, noise: float = 0.0, gain: float = 1.0) -> Path:
    """The tiny target in `dtype`, its weights in `bits`; `gain` multiplies its logits."""
    network, config = tiny_network(TINY, 1, noise), TINY | {"dtype": dtype}
    network.lm_head.weight = network.lm_head.weight * gain
    network.set_dtype(getattr(mx, dtype))
    if bits:
        nn.quantize(network, 32, bits)
        config["quantization"] = {"group_size": 32, "bits": bits}
    return write_model(folder, network, config)


def architecture_folder(name: str, folder: Path, noise: float | None, dtype="float32", bits: int | None = None) -> Path:
    """A listed architecture, random, with the byte tokenizer's vocabulary; `noise` None is a draft's."""
    known = architectures()[name]
    config = dict(known.config)
    if nested := config.get("text_config"):
        config["text_config"] = dict(nested) | {"vocab_size": 259}
    else:
        config["vocab_size"] = 259
    noise = known.noise if noise is None else noise
    network = make_network(Architecture(name, config, gain=known.gain), seed=1, noise=noise)
    if dtype != "float32":
        network.set_dtype(getattr(mx, dtype))
    if bits:
        nn.quantize(network, 32, bits, class_predicate=_quantizable)
        config["quantization"] = {"group_size": 32, "bits": bits}
    return write_model(folder, network, config | {"dtype": dtype})


def _quantizable(_: str, module: nn.Module) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0


def lowered(logits: mx.array, size: float) -> mx.array:
    """`logits` [1, n, V] with each row's best one lower by `size`."""
    best = mx.argmax(logits, axis=-1, keepdims=True)
    return (logits - size * (mx.arange(logits.shape[-1]) == best)).astype(logits.dtype)


def lifted(size: float, every: int, monkeypatch) -> None:
    """specdec's passes of several rows rate each token of such an id higher by `size`."""

    def planted(logits):
        return logits + (size * (mx.arange(logits.shape[-1]) % every == 0)).astype(logits.dtype)

    _in_passes(planted, monkeypatch)


def in_rows(size: float, monkeypatch, rows: slice = slice(None)) -> None:
    """specdec's passes of several rows lower the best logit of `rows` by `size`."""

    def planted(logits):
        if logits.shape[0] > max(1, rows.start or 0):
            logits[rows] = lowered(logits[None, rows], size)[0]
        return logits

    _in_passes(planted, monkeypatch)


def _in_passes(planted, monkeypatch) -> None:
    forward = Network.forward

    def wrong(network, tokens, caches):
        output = forward(network, tokens, caches)
        return replace(output, logits=planted(output.logits)) if 1 < tokens.size <= MOST_ROWS else output

    monkeypatch.setattr(Network, "forward", wrong)


def in_kernels(session: Session) -> None:
    """Products of several rows are summed up in two halves: a correct kernel, with another order of summation."""

    def halves(module, original, args, kwargs):
        (x,) = args
        if not 1 < x.shape[-2] <= MOST_ROWS:
            return original(module, x)
        middle, columns = x.shape[-1] // 2, mx.arange(x.shape[-1])
        first = mx.where(columns < middle, x, 0.0).astype(x.dtype)
        return original(module, first) + original(module, x - first)

    for _, module in session.slot.target.network.module.named_modules():
        if isinstance(module, nn.Linear | nn.QuantizedLinear):
            hook(module, halves)


def zeroed_keys(monkeypatch) -> None:
    """Every second rollback leaves the last key that it keeps at zero, in every layer that has keys."""
    rollback, rollbacks = Caches.rollback, count()

    def zeroing(caches, length):
        before = caches.length
        reached = rollback(caches, length)
        if 0 < reached < before and next(rollbacks) % 2:
            for layer in leaves(caches.layers):
                if isinstance(getattr(layer, "keys", None), mx.array):
                    layer.keys[..., reached - 1, :] = 0
        return reached

    monkeypatch.setattr(Caches, "rollback", zeroing)


def left_over(share: float, monkeypatch) -> None:
    """A rollback leaves `share` of the first rejected value in the last one that is kept, in every layer."""
    rollback = Caches.rollback

    def leaking(caches, length):
        before = caches.length
        reached = rollback(caches, length)
        if 0 < reached < before:
            for layer in caches.layers:
                values = layer.values
                values[..., reached - 1, :] = values[..., reached - 1, :] + share * values[..., reached, :]
        return reached

    monkeypatch.setattr(Caches, "rollback", leaking)
