"""One architecture at a time: are specdec's tokens the model's own? The oracle is mlx-lm's plain decoding.

Networks are tiny and random; their greedy output varies, and perturbed copies of them agree now and then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes

from specdec_cli.engine import device
from specdec_cli.engine.decode import decode, rounds_of
from specdec_cli.engine.draft_length.adaptive import Fixed
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.load import Architecture
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.errors import SpecdecError

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


def check(architecture: Architecture, k: int, tokens: int) -> Outcome:
    """Decode `tokens` past the window (or past the prompt where there is none) with K = `k`, and plainly by mlx-lm."""
    reason = METAL_ONLY if architecture.metal_only and device.backend() != "metal" else architecture.refused
    if reason:
        return Outcome(architecture.name, "refused", detail=reason)
    network, context, count = tiny_network(architecture, 1), list(PROMPT), (architecture.window or 0) + tokens
    target = CachedModel(network, architecture.name)
    draft = CachedModel(tiny_network(architecture, 1, architecture.noise), "draft")
    for _ in target.prefill(context):
        pass
    rule = greedy(target.vocab_size)
    drafter = ModelDrafter(draft, target.vocab_size, greedy(target.vocab_size))
    steps = decode(target, drafter, rule, Fixed(k), context, count, frozenset(), time.perf_counter)
    rounds = list(rounds_of(steps))
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


def run_suite(architectures: Sequence[Architecture], k: int, tokens: int) -> Iterator[Outcome]:
    """Run `check` on each architecture as target. One that raises counts as wrong, and the run goes on."""
    for architecture in architectures:
        try:
            yield check(architecture, k, tokens)
        except RAISED as error:
            yield Outcome(architecture.name, "wrong", detail=f"{type(error).__name__}: {error}")
        mx.clear_cache()


def tiny_network(architecture: Architecture, seed: int, noise: float = 0.0) -> nn.Module:
    """`architecture` in float32 with random weights of `seed`, evaluated; `noise` moves every matrix by that share."""
    model_class, args_class = _get_classes(dict(architecture.config))
    mx.random.seed(seed)  # biases and some decays start random
    network = model_class(args_class.from_dict(dict(architecture.config)))
    key = mx.random.key(seed)
    weights = []
    for path, value in sorted(tree_flatten(network.parameters())):
        key, first, second = mx.random.split(key, 3)
        weights.append((path, draw_weight(path, value, first, second, architecture.gain, noise)))
    network.update(tree_unflatten(weights))
    mx.eval(network.parameters())
    return network


def draw_weight(path: str, value: mx.array, first: mx.array, second: mx.array, gain: float, noise: float) -> mx.array:
    """Matrices are drawn anew, scaled by their fan-in; vectors (norms, biases, decays) keep near their start."""
    special = _recurrent(path, value, first)
    if special is None:
        special = _packed(path, value, first, second, gain, noise)
    if special is not None or not mx.issubdtype(value.dtype, mx.floating):
        return value if special is None else special
    moved = mx.random.normal(value.shape, key=first)
    if value.ndim < 2:
        return mx.add(value.astype(mx.float32), 0.1 * moved)
    moved = moved + noise * mx.random.normal(value.shape, key=second)
    return mx.multiply(gain / value.shape[-1] ** 0.5, moved)


def _recurrent(path: str, value: mx.array, key: mx.array) -> mx.array | None:
    """Decays: as they start, most states would forget everything in a position or two, and a lost rollback too."""
    if path.endswith("A_log"):
        return mx.random.uniform(-3.0, 0.0, value.shape, key=key)
    if path.endswith(("recurrent_param", "w_lora.lora.2.bias")):
        return mx.random.uniform(-5.0, -2.0, value.shape, key=key)
    if path.endswith((".x_r", ".x_w", ".x_k", ".x_v", ".x_a", ".x_g")):  # shares of the previous position
        return mx.random.uniform(0.0, 1.0, value.shape, key=key)
    if path.endswith(".r_k"):  # how far the current position bypasses the state
        return mx.multiply(0.1, mx.random.normal(value.shape, key=key))
    return None


def _packed(
    path: str, value: mx.array, first: mx.array, second: mx.array, gain: float, noise: float
) -> mx.array | None:
    """Numbers of a few bits in one word, and what belongs to them."""
    if path.endswith(".signs"):
        return mx.where(mx.random.bernoulli(0.5, value.shape, key=first), 1.0, -1.0)
    if path.endswith(".weight") and value.dtype == mx.uint8:  # four ternary numbers
        codes = mx.random.randint(0, 3, (*value.shape, 4), mx.uint8, key=first)
        return mx.left_shift(codes, mx.array([0, 2, 4, 6], mx.uint8)).sum(-1).astype(mx.uint8)
    if path.endswith(".weight") and value.dtype == mx.uint32:
        return mx.random.randint(0, 256, (*value.shape, value.itemsize), mx.uint8, key=first).view(value.dtype)[..., 0]
    if path.endswith((".scales", ".biases")) and value.ndim > 1:  # of 2-bit numbers in groups of 128, centred
        scale = gain / (128 * value.shape[-1]) ** 0.5 * (-1.5 if path.endswith(".biases") else 1.0)
        moved = 0.1 * mx.random.normal(value.shape, key=first) + noise * mx.random.normal(value.shape, key=second)
        return mx.multiply(scale, 1.0 + moved)
    return None
