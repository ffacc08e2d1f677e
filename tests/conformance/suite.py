"""One architecture at a time: are specdec's tokens the model's own? The oracle is mlx-lm's plain decoding.

Networks are tiny and random; their greedy output varies, and perturbed copies of them agree now and then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from conformance.architectures import Architecture, tiny_network
from specdec_cli.core.events import Round
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy

Status = Literal["pass", "wrong", "idle", "refused"]
METAL_ONLY = "mlx-lm's own code for it runs on Metal only"
PROMPT = [(7 * i) % 97 + 3 for i in range(9)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`pass`: all tokens equal. `wrong`: `detail` names the first that differs. `idle`: nothing was accepted or nothing
    rejected, so that rollback was not tried. `refused`: cannot be decoded here, `detail` says why."""

    name: str
    status: Status
    caches: tuple[str, ...] = ()
    accepted: int = 0
    rejected: int = 0
    detail: str = ""


def check(architecture: Architecture, k: int, tokens: int) -> Outcome:
    """Decode `tokens` past the window (or past the prompt where there is none) with K = `k`, and plainly by mlx-lm."""
    if architecture.metal_only and device.backend() != "metal":
        return Outcome(architecture.name, "refused", detail=METAL_ONLY)
    network, context, count = tiny_network(architecture, 1), list(PROMPT), (architecture.window or 0) + tokens
    target = CachedModel(network, architecture.name)
    draft = CachedModel(tiny_network(architecture, 1, architecture.noise), "draft")
    for _ in target.prefill(context):
        pass
    rule = greedy(target.vocab_size)
    drafters = Drafters(ModelDrafter(draft, target.vocab_size, greedy(target.vocab_size)), k)
    steps = decode(target, drafters, rule, context, count, frozenset(), time.perf_counter)
    rounds = [step for step in steps if isinstance(step, Round)]
    differs = _difference(plain_tokens(network, len(context) - len(PROMPT)), context[len(PROMPT) :])
    accepted = sum(round.accepted for round in rounds)
    rejected = sum(round.accepted < len(round.draft) for round in rounds)
    status: Status = "wrong" if differs else "pass" if accepted and rejected else "idle"
    return Outcome(architecture.name, status, target.cache_kinds, accepted, rejected, differs)


def plain_tokens(network: nn.Module, count: int) -> list[int]:
    """mlx-lm's own after PROMPT, with its own caches and one row at a time: what is said must not depend on rows."""
    cache = make_prompt_cache(network)
    for token in PROMPT[:-1]:
        mx.eval(network(mx.array([[token]]), cache=cache))
    steps = generate_step(mx.array(PROMPT[-1:]), network, max_tokens=count, prompt_cache=cache)
    return [int(token) for token, _ in steps]


def _difference(expected: Sequence[int], found: Sequence[int]) -> str:
    for i, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        if theirs != ours:
            return f"position {len(PROMPT) + i}: {ours} instead of {theirs}"
    return ""
