"""Damaged weights compute no numbers, and an argmax over them still names a token. Law: no such token is emitted.

The largest logit of a pass tells: it is no finite number as soon as one of them is NaN or infinite. Its bits travel in
the round's one read-back.
"""

from __future__ import annotations

import struct
from math import isfinite

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.errors import NotAvailable


def witness(logits: mx.array, log_q: mx.array | None = None) -> mx.array:
    """The bits of the largest of `logits`, as a whole number; with `log_q`, of the sum of the largest of both. Lazy."""
    largest = mx.max(logits) if log_q is None else mx.max(logits) + mx.max(log_q)
    return largest.astype(mx.float32).view(mx.int32)


def is_finite(bits: int) -> bool:
    """Whether these bits, as they were read back, are those of a finite number."""
    value: float = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    return isfinite(value)


class NotFinite(NotAvailable):
    """A model whose logits are no numbers."""


def not_finite(target: str, log_q: mx.array | None) -> NotFinite:
    """The refusal of the model to blame: the draft if what it drew from is no distribution, else the target."""
    draft = log_q is not None and not is_finite(device.to_list(witness(log_q)[None])[0])
    name = "draft" if draft else f"target {target}"
    instead = "--drafter none decodes without it" if draft else "specdec pull --verify compares what was downloaded"
    return NotFinite(
        f"the {name} computes values that are no numbers (NaN or infinite): "
        "its weights are damaged, or too large for their type",
        f"download it again, or use another conversion; {instead}",
    )
