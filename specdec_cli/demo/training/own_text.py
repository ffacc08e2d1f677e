"""Greedy text that a network in training writes anew every few steps, and the loss of repeating itself in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from continuation import continue_text, repeats, repetition_rate
from network import Network
from windows import Streams, windows

PROMPT, FRESH_EVERY = 96, 8


def own_text(
    network: Network, streams: Streams, rows: int, width: int, seed: int, say: Callable[[int, float], None]
) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Of a step: ids [rows / FRESH_EVERY, width + 1] of corpus prompts continued, and repeats [.., width + 1 - PROMPT].

    `say` gets the step at which text was written, and its repetition rate."""
    share = rows // FRESH_EVERY
    fresh: dict[int, Tensor] = {}

    def of(step: int) -> tuple[Tensor, Tensor]:
        group = step // FRESH_EVERY
        if group not in fresh:
            prompts = windows(streams, PROMPT, np.random.default_rng(seed + group), rows)[:, :PROMPT]
            fresh.clear()
            fresh[group] = continue_text(network, prompts, width + 1 - PROMPT, 0.0, group)
            say(step, round(float(np.mean([repetition_rate(row[PROMPT:].numpy()) for row in fresh[group]])), 4))
        own = fresh[group][(step % FRESH_EVERY) * share :][:share]
        return own, torch.from_numpy(np.stack([repeats(row[PROMPT:].numpy()) for row in own])).float()

    return of


def unlikelihood(log_probs: Tensor, own: Tensor, looping: Tensor) -> Tensor:
    """-log(1 - p) of the tokens that repeat, their mean (Welleck et al., arXiv:1908.04319): log_probs [B, width, V]."""
    chosen = log_probs.gather(-1, own[:, 1:, None])[:, PROMPT - 1 :, 0]
    penalty = -torch.log1p(-chosen.exp().clamp(max=1 - 1e-4))
    return (penalty * looping).sum() / looping.sum().clamp(min=1)
