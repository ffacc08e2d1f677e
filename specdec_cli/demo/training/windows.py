"""Training windows: rows of ids cut at random from streams by their shares."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Streams = list[tuple[float, np.ndarray]]  # (share of the windows, ids)
TOKENS_PER_STEP = 4096


def windows(streams: Streams, length: int, rng: np.random.Generator, rows: int | None = None) -> Tensor:
    """[rows, length + 1] ids; without `rows`, as many as make TOKENS_PER_STEP."""
    shares = np.array([share for share, _ in streams])
    cut = []
    for which in rng.choice(len(streams), rows or TOKENS_PER_STEP // length, p=shares / shares.sum()):
        ids = streams[which][1]
        start = rng.integers(0, len(ids) - length - 1)
        cut.append(ids[start : start + length + 1].astype(np.int64))
    return torch.from_numpy(np.stack(cut))
