"""A model's size from its name (pure). Law: a name that does not state it gives no size."""

from __future__ import annotations

import re

# "8B", "0.6B", "135M"; the "A3B" of a mixture's active weights and the "e2b" of an effective size say something else.
WEIGHTS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.I)
BITS = re.compile(r"(?<![a-z0-9])(?:(\d+)-?bit|(?:mx|nv)?fp(\d+)|[bf]f?(16)|q(\d+))(?![a-z0-9])", re.I)


def named_bytes(name: str) -> int | None:
    """Bytes of the weights, by the parameters and bits that `name` states; 16 bits where it states none.

    A group of quantized weights has a scale and a bias: half a bit a weight.
    """
    short = name.rstrip("/").rsplit("/", 1)[-1]
    weights = WEIGHTS.search(short)
    if weights is None:
        return None
    bits = BITS.search(short)
    stated = int(next(filter(None, bits.groups()))) if bits else 16
    parameters = float(weights[1]) * (1e9 if weights[2] in "bB" else 1e6)
    return int(parameters * (stated + (0.5 if stated < 16 else 0.0)) / 8)
