"""A loaded target with an error of known size in its logits, and tiny models in every precision."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from fakes.models import TINY, byte_tokenizer, tiny_network, write_tokenizer
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.intercept import intercept
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
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())))
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, byte_tokenizer())
    return folder


def lowered(logits: mx.array, size: float) -> mx.array:
    """`logits` [1, n, V] with each row's best one lower by `size`."""
    best = mx.argmax(logits, axis=-1, keepdims=True)
    return (logits - size * (mx.arange(logits.shape[-1]) == best)).astype(logits.dtype)


def in_rows(session: Session, size: float, rows: slice = slice(None)) -> None:
    """Passes of several rows lower the best logit of `rows` by `size`."""

    def planted(module, original, args, kwargs):
        logits = original(module, *args, **kwargs)
        if not max(1, rows.start or 0) < logits.shape[1] <= MOST_ROWS:
            return logits
        logits[:, rows] = lowered(logits[:, rows], size)
        return logits

    intercept(session.slot.target.network.module, planted)


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
            intercept(module, halves)


def after_rollbacks(session: Session, size: float, monkeypatch) -> None:
    """The pass after a rollback lowers each row's best logit by `size`."""
    rollback, dirty = Caches.rollback, []

    def leaving(caches, length):
        before = caches.length
        reached = rollback(caches, length)
        if reached < before and caches.layers:
            dirty.append(caches)
        return reached

    def planted(module, original, args, kwargs):
        logits = original(module, *args, **kwargs)
        wrong = any(caches.layers is kwargs.get("cache") for caches in dirty)
        dirty.clear()
        return lowered(logits, size) if wrong else logits

    monkeypatch.setattr(Caches, "rollback", leaving)
    intercept(session.slot.target.network.module, planted)


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
