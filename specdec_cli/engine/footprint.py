"""How much memory a checkpoint takes, before its weights are read. Law: cache sizes come from the architecture's own
caches, built lazily and never evaluated, so that every cache kind is counted as it is."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from specdec_cli.checkpoint import Checkpoint
from specdec_cli.engine import device
from specdec_cli.engine.load import blank_network
from specdec_cli.engine.model import PREFILL_TOKENS
from specdec_cli.memory import Footprint, MemoryEstimate, prefill_bytes

VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def footprint(checkpoint: Checkpoint, context_tokens: int, weight_bytes: int) -> Footprint:
    """Bytes of `checkpoint` at `context_tokens`; `weight_bytes` are its weights in memory."""
    config = checkpoint.text_config
    value_bytes = VALUE_BYTES.get(checkpoint.declared_dtype or "", 2)
    hidden = int(config.get("hidden_size", 0))
    rows = min(PREFILL_TOKENS, context_tokens)
    return Footprint(
        name=checkpoint.name,
        weight_bytes=weight_bytes,
        cache_bytes=cache_bytes(checkpoint, context_tokens) * value_bytes // 4,
        prefill_bytes=prefill_bytes(
            rows,
            context_tokens,
            hidden,
            int(config.get("intermediate_size", 4 * hidden)),
            int(config.get("num_attention_heads", 1)),
            value_bytes,
            fused_attention=device.backend() != "cpu",
        ),
    )


def cache_bytes(checkpoint: Checkpoint, context_tokens: int) -> int:
    """Bytes of all layer caches after `context_tokens`, in float32; shapes only, nothing is computed."""
    network = blank_network(checkpoint)
    caches = make_prompt_cache(network)
    network(mx.zeros((1, context_tokens), mx.int32), cache=caches)
    return sum(cache.nbytes for cache in caches)


def estimate(checkpoints: Sequence[Checkpoint], context_tokens: int) -> MemoryEstimate:
    """All models of a pair whose weights are here, against what this device may use."""
    limits = [limit for c in checkpoints if (limit := c.context_limit)]
    context = min([context_tokens, *limits])
    parts = tuple(footprint(c, context, c.loaded_bytes) for c in checkpoints)
    return MemoryEstimate(parts, context, device.usable_bytes())


def require_fit(checkpoints: Sequence[Checkpoint], context_tokens: int) -> None:
    """Raises: DoesNotFit, with the numbers and what would fit."""
    # Caches and activations of a small model are small too: what takes a tenth need not be counted exactly.
    if sum(c.loaded_bytes for c in checkpoints) * 10 < device.usable_bytes() and context_tokens < 8192:
        return
    found = estimate(checkpoints, context_tokens)
    if not found.fits:
        raise found.obstacle()
