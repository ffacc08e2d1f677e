"""Text that a network writes itself, and how much of it repeats what it wrote before."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from network import Network

LOOP_GRAM = 8


@torch.no_grad()
def continue_text(network: Network, prompts: Tensor, count: int, temperature: float, seed: int) -> Tensor:
    """[B, T + count] ids: the prompts and what the network writes after them; temperature 0 is greedy."""
    generator = torch.Generator().manual_seed(seed)
    pasts = network.pasts(prompts.shape[0])
    ids, fed = prompts, prompts
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(count):
            logits = network(fed, pasts)[:, -1].float()
            if temperature == 0:
                fed = logits.argmax(-1, keepdim=True)
            else:
                fed = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
            ids = torch.cat((ids, fed), 1)
    return ids


def repeats(ids: np.ndarray) -> np.ndarray:
    """[N] bool: this id completes a LOOP_GRAM-gram that occurred before in `ids`."""
    marks, seen = np.zeros(len(ids), dtype=bool), set()
    for end in range(LOOP_GRAM, len(ids) + 1):
        gram = tuple(ids[end - LOOP_GRAM : end])
        marks[end - 1] = gram in seen
        seen.add(gram)
    return marks


def repetition_rate(ids: np.ndarray) -> float:
    """Share of the LOOP_GRAM-grams of `ids` that occurred before in it: 0 never repeats, near 1 is a loop."""
    return float(repeats(ids)[LOOP_GRAM - 1 :].mean())
