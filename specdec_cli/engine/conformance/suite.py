"""One architecture at a time: are specdec's tokens the model's own? The oracle is mlx-lm's plain decoding."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from specdec_cli.engine import device
from specdec_cli.engine.architectures import Architecture
from specdec_cli.engine.conformance.networks import tiny_network
from specdec_cli.engine.decode import decode, rounds_of
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.model import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.errors import SpecdecError
from specdec_cli.events import Round

Role = Literal["target", "draft"]
Status = Literal["pass", "wrong", "idle", "refused"]
METAL_ONLY = "mlx-lm's own code for it runs on Metal only"
ROLLBACK_LOGIC = "rollback logic, float32"
# What a network, its caches or the device may raise.
RAISED = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, SpecdecError)
PROMPT = [(7 * i) % 97 + 3 for i in range(9)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`pass`: all tokens equal. `wrong`: `detail` names the first that differs. `idle`: nothing was accepted or nothing
    rejected, so that rollback was not tried. `refused`: cannot be built or decoded here, `detail` says why.
    `proves` is the one thing that a pass shows."""

    name: str
    status: Status
    caches: tuple[str, ...] = ()
    accepted: int = 0
    rejected: int = 0
    detail: str = ""
    proves: str = ROLLBACK_LOGIC


def check(
    architecture: Architecture, k: int, tokens: int, role: Role = "target", prompt: Sequence[int] = PROMPT
) -> Outcome:
    """Decode `tokens` past the window (or past the prompt where there is none) with K = `k`.

    As target: the emitted tokens are mlx-lm's greedy ones. As draft: every round's draft is how mlx-lm continues the
    same context with the drafting model, whatever was rejected before.
    """
    reason = METAL_ONLY if architecture.metal_only and device.backend() != "metal" else architecture.refused
    if reason:
        return Outcome(architecture.name, "refused", detail=reason)
    network, perturbed = tiny_network(architecture, 1), tiny_network(architecture, 1, architecture.noise)
    target, oracle = CachedModel(network, architecture.name), Oracle(network if role == "target" else perturbed)
    context, rounds = list(prompt), []
    differs = ""
    draft, count = CachedModel(perturbed, "draft"), (architecture.window or 0) + tokens
    for round, before in _rounds(target, draft, context, k, count):
        rounds.append(round)
        if role == "draft" and round.draft and not differs:
            differs = _difference(oracle.continues(before, len(round.draft)), round.draft, len(before))
    emitted = context[len(prompt) :]
    if role == "target":
        differs = _difference(oracle.continues(prompt, len(emitted)), emitted, len(prompt))
    accepted = sum(round.accepted for round in rounds)
    rejected = sum(round.accepted < len(round.draft) for round in rounds)
    status: Status = "wrong" if differs else "pass" if accepted and rejected else "idle"
    return Outcome(architecture.name, status, target.cache_kinds, accepted, rejected, differs)


def _rounds(
    target: CachedModel, draft: CachedModel, context: list[int], k: int, tokens: int
) -> Iterator[tuple[Round, list[int]]]:
    """Greedy rounds, each with the context it started from; `context` grows in place."""
    before = list(context)
    for _ in target.prefill(context):
        pass
    drafter = ModelDrafter(draft, target.vocab_size, greedy(target.vocab_size))
    steps = decode(
        target, drafter, greedy(target.vocab_size), Fixed(k), context, tokens, frozenset(), time.perf_counter
    )
    for round in rounds_of(steps):
        yield round, before
        before = list(context)


class Oracle:
    """mlx-lm's plain decoding with its own caches, one row at a time: what a model says must not depend on rows."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._cache = make_prompt_cache(network)
        self._fed = 0

    def continues(self, context: Sequence[int], tokens: int) -> list[int]:
        """The next `tokens` after `context`, which begins with the context of the last call."""
        for token in context[self._fed : -1]:
            mx.eval(self._network(mx.array([[token]]), cache=self._cache))
        self._fed = len(context) - 1
        steps = generate_step(
            mx.array(list(context[-1:])), self._network, max_tokens=tokens, prompt_cache=deepcopy(self._cache)
        )
        return [int(token) for token, _ in steps]


def _difference(expected: Sequence[int], found: Sequence[int], start: int) -> str:
    for i, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        if theirs != ours:
            return f"position {start + i}: {ours} instead of {theirs}"
    return ""


def run_suite(architectures: Sequence[Architecture], k: int, tokens: int) -> Iterator[Outcome]:
    """Run `check` on each architecture as target. One that raises counts as wrong, and the run goes on."""
    for architecture in architectures:
        try:
            yield check(architecture, k, tokens)
        except RAISED as error:
            yield Outcome(architecture.name, "wrong", detail=f"{type(error).__name__}: {error}")
        mx.clear_cache()
