"""Unlearning loops: a model of this size decodes greedily in loops, and loops buy acceptance that means nothing.

Unlikelihood on what the network's own greedy text repeats (Welleck et al., arXiv:1908.04319), likelihood on the
corpus beside it, then an average with the weights from before (`averaging`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from averaging import least_step, state_of
from fitting import Log, Schedule, fit
from network import Network
from own_text import own_text, unlikelihood
from windows import Streams, windows


@dataclass(frozen=True, slots=True)
class Pass:
    """`steps` at `peak` of the learning rates; fresh text of `rows` × `width` tokens; `weight` of its repeats."""

    steps: int
    peak: float
    rows: int
    width: int
    weight: float
    seed: int


PASSES = (Pass(160, 0.1, 64, 512, 1.0, 30_000), Pass(88, 0.25, 128, 288, 2.0, 50_000))
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def unlearn_loops(
    network: Network,
    streams: Streams,
    validation: np.ndarray,
    work: Path,
    log: Log,
    passes: tuple[Pass, ...] = PASSES,
    shares: tuple[float, ...] = SHARES,
) -> Network:
    """The least averaged step that repeats at most WANTED_REPETITION; else the one that repeats least."""
    before = state_of(network)
    for number, each in enumerate(passes):
        loss = _loss(network, streams, each, log)
        fit("loops", network, Schedule(each.steps, 0.6, each.peak), loss, work / f"loops-{number}.pt", log)
    least_step(network, before, network, validation, shares, work / "calm.pt", log)
    return network.requires_grad_(False)


def _loss(network: Network, streams: Streams, each: Pass, log: Log):
    """Of a step: corpus likelihood plus unlikelihood of the repeats in own text."""

    @torch.compile(dynamic=False)
    def loss(corpus: Tensor, own: Tensor, looping: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted, unwanted = network(corpus[:, :-1]), network(own[:, :-1])
        likelihood = F.cross_entropy(wanted.flatten(0, 1).float(), corpus[:, 1:].flatten())
        return likelihood + each.weight * unlikelihood(unwanted.float().log_softmax(-1), own, looping)

    def say(step: int, repetition: float) -> None:
        log.say(stage="loops", step=step, repetition_rate=repetition)

    text = own_text(network, streams, each.rows, each.width, each.seed, say)

    def loss_of(step: int) -> Tensor:
        corpus = windows(streams, 512, np.random.default_rng(each.seed + 10_000 + step))
        return loss(corpus, *text(step))

    return loss_of
