"""Unlearning loops: a model of this size decodes greedily in loops, and loops buy acceptance that means nothing.

Unlikelihood on what the network's own greedy text repeats (Welleck et al., arXiv:1908.04319), likelihood on the
corpus beside it, then an average with the weights from before (Wortsman et al., arXiv:2109.01903). How far the
average goes is decided by a rule on validation prompts, never by the prompts of the published table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from continuation import continue_text, repeats, repetition_rate
from fitting import Log, Schedule, fit
from network import Network
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
PROMPT, FRESH_EVERY = 96, 8
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
WANTED_REPETITION = 0.12


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
    before = {name: value.clone() for name, value in network.state_dict().items()}
    for number, each in enumerate(passes):
        loss = _loss(network, streams, each, log)
        fit("loops", network, Schedule(each.steps, 0.6, each.peak), loss, work / f"loops-{number}.pt", log)
    after = {name: value.clone() for name, value in network.state_dict().items()}
    chosen = work / "calm.pt"
    if not chosen.exists():
        tried = []
        for share in shares:
            network.load_state_dict({name: torch.lerp(value, after[name], share) for name, value in before.items()})
            repetition, loss = _judge(network, validation)
            log.say(stage="average", share=share, repetition_rate=repetition, validation_loss=loss)
            tried.append((repetition, share))
            if repetition <= WANTED_REPETITION:
                break
        torch.save({"share": tried[-1][1] if tried[-1][0] <= WANTED_REPETITION else min(tried)[1]}, chosen)
    share = torch.load(chosen)["share"]
    network.load_state_dict({name: torch.lerp(value, after[name], share) for name, value in before.items()})
    return network.requires_grad_(False)


def _loss(network: Network, streams: Streams, each: Pass, log: Log):
    """Of a step: corpus likelihood plus unlikelihood of the repeats in own text, fresh every FRESH_EVERY steps."""
    rows = each.rows // FRESH_EVERY
    fresh: dict[int, Tensor] = {}

    @torch.compile(dynamic=False)
    def loss(corpus: Tensor, own: Tensor, looping: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted, unwanted = network(corpus[:, :-1]), network(own[:, :-1])
        likelihood = F.cross_entropy(wanted.flatten(0, 1).float(), corpus[:, 1:].flatten())
        chosen = unwanted.float().log_softmax(-1).gather(-1, own[:, 1:, None])[..., 0]
        penalty = -torch.log1p(-chosen[:, PROMPT - 1 :].exp().clamp(max=1 - 1e-4))
        return likelihood + each.weight * (penalty * looping).sum() / looping.sum().clamp(min=1)

    def loss_of(step: int) -> Tensor:
        group = step // FRESH_EVERY
        if group not in fresh:
            prompts = windows(streams, PROMPT, np.random.default_rng(each.seed + group), each.rows)[:, :PROMPT]
            fresh.clear()
            fresh[group] = continue_text(network, prompts, each.width + 1 - PROMPT, 0.0, group)
            rates = [repetition_rate(row[PROMPT:].numpy()) for row in fresh[group]]
            log.say(stage="loops", step=step, repetition_rate=round(float(np.mean(rates)), 4))
        own = fresh[group][(step % FRESH_EVERY) * rows :][:rows]
        looping = torch.from_numpy(np.stack([repeats(row[PROMPT:].numpy()) for row in own]))
        corpus = windows(streams, 512, np.random.default_rng(each.seed + 10_000 + step))
        return loss(corpus, own, looping.float())

    return loss_of


@torch.no_grad()
def _judge(network: Network, prompts: np.ndarray) -> tuple[float, float]:
    """(repetition of greedy continuations of 128 tokens, nats a token on the prompts themselves)."""
    ids = torch.from_numpy(prompts.astype(np.int64))
    text = continue_text(network, ids, 128, 0.0, 0)
    repetition = np.mean([repetition_rate(row[ids.shape[1] :].numpy()) for row in text])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(ids[:, :-1]).float()
    return round(float(repetition), 4), round(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item(), 4)
