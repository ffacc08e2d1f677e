"""Averages of two states of a network (Wortsman et al., arXiv:2109.01903), and the rule that chooses one.

How far the average goes is decided on validation prompts, never on the prompts of the published table.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from continuation import continue_text, repetition_rate
from fitting import Log
from network import Network

WANTED_REPETITION = 0.12
State = dict[str, Tensor]


def state_of(network: nn.Module) -> State:
    """Its tensors by name, which later training leaves as they are."""
    return {name: value.clone() for name, value in network.state_dict().items()}


def least_step(
    network: nn.Module,
    before: State,
    target: Network,
    validation: np.ndarray,
    shares: tuple[float, ...],
    chosen: Path,
    log: Log,
) -> None:
    """Leave in `network` the least step from `before` to its state now whose `target` repeats at most
    WANTED_REPETITION; else the one that repeats least. `chosen` keeps the choice."""
    after = state_of(network)

    def load(share: float) -> None:
        network.load_state_dict({name: torch.lerp(value, after[name], share) for name, value in before.items()})

    if not chosen.exists():
        tried = []
        for share in shares:
            load(share)
            repetition, loss = _judge(target, validation)
            log.say(stage="average", share=share, repetition_rate=repetition, validation_loss=loss)
            tried.append((repetition, share))
            if repetition <= WANTED_REPETITION:
                break
        torch.save({"share": tried[-1][1] if tried[-1][0] <= WANTED_REPETITION else min(tried)[1]}, chosen)
    load(torch.load(chosen)["share"])


@torch.no_grad()
def _judge(network: Network, prompts: np.ndarray) -> tuple[float, float]:
    """(repetition of greedy continuations of 128 tokens, nats a token on the prompts themselves)."""
    ids = torch.from_numpy(prompts.astype(np.int64))
    text = continue_text(network, ids, 128, 0.0, 0)
    repetition = np.mean([repetition_rate(row[ids.shape[1] :].numpy()) for row in text])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(ids[:, :-1]).float()
    return round(float(repetition), 4), round(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item(), 4)
