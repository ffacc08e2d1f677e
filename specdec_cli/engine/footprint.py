"""Memory that a checkpoint takes, before its weights are read. Cache sizes come from the architecture's own
caches, built lazily and never evaluated, so that every cache kind is counted as it is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from specdec_cli.engine import device
from specdec_cli.engine.load import empty_model
from specdec_cli.engine.model import CachedModel
from specdec_cli.errors import Refused
from specdec_cli.models.checkpoint import WEIGHTS, Checkpoint
from specdec_cli.models.heads import HeadFiles
from specdec_cli.models.memory import Footprint, MemoryEstimate, prefill_bytes

HINTED_BITS = 8
# Contexts are tried in steps of so many tokens, up to the longest.
STEP, LONGEST = 256, 1 << 20
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def footprint(
    checkpoint: Checkpoint, context_tokens: int, weight_bytes: int, model: CachedModel | None = None
) -> Footprint:
    """Bytes of `checkpoint` at `context_tokens`; `weight_bytes` are its weights in memory, `model` has its shapes.

    Raises: NotAvailable for a size that is none.
    """
    value_bytes = VALUE_BYTES.get(checkpoint.declared_dtype or "", 2)
    hidden = checkpoint.whole("hidden_size", 0)
    rows = min(device.prefill_tokens(), context_tokens)
    model = model or empty_model(checkpoint)
    cache_bytes = model.cache_bytes(context_tokens, value_bytes)
    # From the second chunk on a layer's cache is copied where it grows.
    copied_bytes = cache_bytes // model.layers if rows < context_tokens else 0
    # Quantized keys and values have no fused kernel (mlx-lm, models/base.py).
    sizes = model.head_sizes
    fused = not model.network.kv and bool(sizes) and all(device.fuses_attention(*size) for size in sizes)
    return Footprint(
        name=checkpoint.name,
        weight_bytes=weight_bytes,
        cache_bytes=cache_bytes,
        # Without its Metal kernel a recurrence keeps the state of every token of the chunk, one layer at a time.
        prefill_bytes=(0 if device.backend() == "metal" else rows * model.state_bytes)
        + copied_bytes
        + prefill_bytes(
            rows,
            context_tokens,
            model.layers,
            hidden,
            checkpoint.whole("intermediate_size", 4 * hidden),
            checkpoint.whole("num_attention_heads", 1),
            value_bytes,
            fused_attention=fused,
        ),
    )


def estimate(
    checkpoints: Sequence[Checkpoint],
    weight_bytes: Sequence[int],
    context_tokens: int,
    kv_bits: int | None = None,
    head: HeadFiles | None = None,
    search: bool = True,
) -> MemoryEstimate:
    """All models of a pair, their weights taking `weight_bytes`, and its head, against what this device may use.

    Where they do not fit, the same is estimated with quantized caches, if they allow it, for the hint. `search`: the
    longest context that fits is wanted also where they do.
    Raises: Refused if a model's caches cannot be quantized to `kv_bits`.
    """

    def at(tokens: int, models: Sequence[CachedModel]) -> MemoryEstimate:
        sizes = zip(checkpoints, weight_bytes, models, strict=True)
        parts = [footprint(checkpoint, tokens, size, model) for checkpoint, size, model in sizes]
        if head is not None:  # it reads the prompt with the target, whose layers take more for it
            weights = _bytes_beside(checkpoints, head)
            parts.append(Footprint(f"{head.name} (head)", weights, head.cache_bytes(tokens), 0))
        return MemoryEstimate(tuple(parts), tokens, device.usable_bytes())

    # What the model with the shortest context was made for.
    longest = min([limit for checkpoint in checkpoints if (limit := checkpoint.context_limit)], default=LONGEST)
    models, context = [empty_model(checkpoint, kv_bits) for checkpoint in checkpoints], min(context_tokens, longest)
    found = at(context, models)
    if search or not found.fits:
        steps = range(STEP, longest + 1, STEP)
        fitting = bisect_left(steps, True, key=lambda tokens: not at(tokens, models).fits)
        found = replace(found, largest_context=longest if fitting == len(steps) else fitting * STEP)
    if not found.fits and kv_bits is None:
        with suppress(Refused):
            quantized = [empty_model(checkpoint, HINTED_BITS) for checkpoint in checkpoints]
            found = replace(found, fits_with_kv_bits=HINTED_BITS if at(context, quantized).fits else None)
    return found


def _bytes_beside(checkpoints: Sequence[Checkpoint], head: HeadFiles) -> int:
    """Bytes of a head's weights, none where its files were counted with a model's."""
    # A checkpoint that was read without its weights may have them in its folder all the same.
    counted = {path for c in checkpoints for path in c.weights or c.folder.glob(WEIGHTS)}
    return 0 if counted.issuperset(head.files) else head.loaded_bytes


def require_fit(
    checkpoints: Sequence[Checkpoint], context_tokens: int, kv_bits: int | None = None, head: HeadFiles | None = None
) -> None:
    """Raises: DoesNotFit, with the numbers and what would fit."""
    weights = sum(c.loaded_bytes for c in checkpoints) + (_bytes_beside(checkpoints, head) if head else 0)
    # Caches and activations of a small model are small too: what takes a tenth need not be counted exactly.
    if weights * 10 < device.usable_bytes() and context_tokens < 8192:
        return
    found = estimate(checkpoints, [c.loaded_bytes for c in checkpoints], context_tokens, kv_bits, head, search=False)
    if not found.fits:
        raise found.obstacle()
