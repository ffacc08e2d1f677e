"""Minimising a loss over batches: optimizers, schedule, checkpoints, and the log every stage writes to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

PEAK_MUON, PEAK_ADAM = 4e-3, 3e-3
WARMUP = 0.02  # share of a run whose learning rate rises linearly
SAY_EVERY = 25
SAVE_EVERY = 100


@dataclass(frozen=True, slots=True)
class Log:
    """JSON lines, to the terminal and to `path`: the record of a training."""

    path: Path

    def say(self, **fields: object) -> None:
        line = json.dumps({"time": time.strftime("%Y-%m-%d %H:%M:%S"), **fields})
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")


@dataclass(frozen=True, slots=True)
class Schedule:
    """`steps` long; the last `cooldown` share falls linearly to zero; `peak` scales both learning rates."""

    steps: int
    cooldown: float
    peak: float = 1.0

    def scale(self, step: int) -> float:
        rising = (step + 1) / (WARMUP * self.steps)
        falling = (self.steps - step) / (self.cooldown * self.steps) if self.cooldown else 1.0
        return self.peak * min(1.0, rising, falling)


def optimizers(network: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the hidden matrices, AdamW for embeddings and norms."""
    hidden = [p for n, p in network.named_parameters() if p.dim() == 2 and "embed" not in n]
    rest = [p for n, p in network.named_parameters() if p.dim() != 2 or "embed" in n]
    return [
        torch.optim.Muon(hidden, lr=PEAK_MUON, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=PEAK_ADAM, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def fit(
    name: str,
    network: nn.Module,
    schedule: Schedule,
    loss_of: Callable[[int], Tensor],
    checkpoint: Path,
    log: Log,
) -> None:
    """Minimise `loss_of(step)`; resumes from `checkpoint`, which is written every SAVE_EVERY steps."""
    chosen = optimizers(network)
    peaks = [group["lr"] for optimizer in chosen for group in optimizer.param_groups]
    begin = resume(network, chosen, checkpoint)
    if begin:
        log.say(stage=name, resumed_at=begin, of=schedule.steps)
    clock, mean = time.time(), 0.0
    for step in range(begin, schedule.steps):
        for optimizer, peak in zip(chosen, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * schedule.scale(step)
        loss = loss_of(step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        mean += loss.item()
        if (step + 1) % SAY_EVERY == 0:
            rate = SAY_EVERY / (time.time() - clock)
            log.say(stage=name, step=step + 1, loss=round(mean / SAY_EVERY, 4), steps_per_second=round(rate, 3))
            clock, mean = time.time(), 0.0
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == schedule.steps:
            save(checkpoint, {"network": network.state_dict(), "step": step + 1}, chosen)


def resume(network: nn.Module, chosen: list[torch.optim.Optimizer], checkpoint: Path) -> int:
    """The step to go on from: of `checkpoint` where there is one, else 0."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint)
    network.load_state_dict(state["network"])
    for optimizer, kept in zip(chosen, state["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    return int(state["step"])


def save(path: Path, state: dict[str, object], chosen: list[torch.optim.Optimizer]) -> None:
    """Written beside and renamed: a run killed while it writes loses nothing."""
    beside = path.with_suffix(".part")
    torch.save(state | {"optimizers": [optimizer.state_dict() for optimizer in chosen]}, beside)
    beside.rename(path)
