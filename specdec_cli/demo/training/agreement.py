"""How often the draft's greedy guess is what the target writes: the acceptance to expect of the pair."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from continuation import continue_text, repetition_rate
from hybrid_network import Hybrid
from network import Network


def rounds(agrees: np.ndarray, k: int) -> Iterator[tuple[int, int]]:
    """(drafted, accepted) per round over one continuation, from where the draft agrees with the target."""
    at = 0
    while at < len(agrees):
        drafted = min(k, len(agrees) - at)
        accepted = next((i for i in range(drafted) if not agrees[at + i]), drafted)
        yield drafted, accepted
        at += accepted + 1


@torch.no_grad()
def measure(target: Network, draft: Network, prompts: np.ndarray, count: int = 128) -> dict[str, object]:
    """Greedy acceptance on held-out prompts: a draft token is judged only after the target's own prefix."""
    ids = continue_text(target, torch.from_numpy(prompts.astype(np.int64)), count, 0.0, 0)
    start = prompts.shape[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = torch.cat([draft(rows)[:, start - 1 : -1].argmax(-1) for rows in ids.split(16)])
    written = ids[:, start:].numpy()
    agrees = guess.numpy() == written
    calm = np.array([repetition_rate(row) < 0.1 for row in written])
    table: dict[str, object] = {
        "repetition_rate": round(float(np.mean([repetition_rate(row) for row in written])), 4),
        "prompts": len(prompts),
        "prompts_without_loops": int(calm.sum()),
        "agreement": round(float(agrees.mean()), 4),
    }
    for name, rows in (("all", agrees), ("without_loops", agrees[calm])):
        for k in (1, 2, 4, 8):
            pairs = [pair for row in rows for pair in rounds(row, k)]
            drafted, accepted = (sum(column) for column in zip(*pairs, strict=True))
            judged = sum(a + (a < d) for d, a in pairs)
            table[f"{name}_k{k}"] = {"judged": round(accepted / judged, 4), "drafted": round(accepted / drafted, 4)}
    return table


@torch.no_grad()
def measure_head(network: Hybrid, prompts: np.ndarray, count: int = 128, deepest: int = 4) -> dict[str, object]:
    """Greedy acceptance of the head's own chains on held-out prompts, `by_position` as specdec counts it."""
    ids = continue_text(network, torch.from_numpy(prompts.astype(np.int64)), count, 0.0, 0)
    start = prompts.shape[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        runs = torch.cat([_runs(network, rows, deepest) for rows in ids.split(16)]).numpy()[:, start - 2 :]
    written = ids[:, start:].numpy()
    calm = np.array([repetition_rate(row) < 0.1 for row in written])
    table: dict[str, object] = {
        "repetition_rate": round(float(np.mean([repetition_rate(row) for row in written])), 4),
        "prompts": len(prompts),
        "prompts_without_loops": int(calm.sum()),
    }
    for name, rows in (("all", runs), ("without_loops", runs[calm])):
        for k in range(1, deepest + 1) if len(rows) else ():
            accepted = np.array([a for row in rows for a in _head_rounds(row, k)])
            table[f"{name}_k{k}"] = {
                "drafted": round(float(accepted.mean() / k), 4),
                "by_position": [round(float((accepted > i).mean()), 4) for i in range(k)],
            }
    return table


def _runs(network: Hybrid, ids: Tensor, deepest: int) -> Tensor:
    """[B, P]: how many guesses in a row are right behind token p + 1, at most `deepest`."""
    guesses = network.guesses(ids, network.states(ids), deepest)
    places = ids.shape[1] - 1 - deepest
    right = [guess.argmax(-1)[:, :places] == ids[:, 1 + s :][:, :places] for s, guess in enumerate(guesses, 1)]
    return torch.stack(right).cumprod(0).sum(0)


def _head_rounds(runs: np.ndarray, k: int) -> Iterator[int]:
    """Accepted tokens of each round over one answer, whose rounds of `k` begin where the one before ended."""
    at = 0
    while at < len(runs):
        accepted = min(int(runs[at]), k)
        yield accepted
        at += accepted + 1
