"""mlx-lm's own `generate_step`: as Rounds, the honest baseline and the oracle our loop is tested against; as scored
steps, the oracle of `specdec audit`. Caches and loop are mlx-lm's, one row at a time.

Letters: V vocabulary width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache

from specdec_cli.engine.cache.kinds import KVQuantization
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.sampling.constraint import Constraint
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.events import Round
from specdec_cli.kinds import NONE

Scores = Callable[[mx.array, mx.array], mx.array]


def baseline(
    network: nn.Module, context: Sequence[int], max_tokens: int, stop_tokens: frozenset[int], clock: Clock
) -> Iterator[Round]:
    """Greedy plain decoding by mlx-lm, one Round per token; `verify_seconds` is the time between tokens.

    mlx-lm chooses in the model's own type (see `plain_steps`): an oracle for tokens in float32 alone.
    """
    since = clock()
    steps = generate_step(mx.array(list(context)), network, max_tokens=max_tokens)
    for index, (token, _) in enumerate(steps):
        now = clock()
        token = int(token)
        yield Round(
            index=index,
            drafter=NONE.name,
            draft=(),
            accepted=0,
            next=token,
            emitted=(token,),
            draft_seconds=0.0,
            verify_seconds=now - since,
        )
        if token in stop_tokens:
            return
        since = clock()


@dataclass(frozen=True, slots=True, eq=False)
class PlainStep:
    """One token of plain decoding: its row of `logits` [V], and the `scores` [V] of which it is the best."""

    token: int
    logits: mx.array
    scores: mx.array

    def lead(self, token: int) -> float:
        """The score of plain decoding's token less that of `token`."""
        best, other = self.scores[self.token].astype(mx.float32), self.scores[token].astype(mx.float32)
        return float(best - other)

    @property
    def largest_logit(self) -> float:
        """The largest finite magnitude: the rounding of this step is proportional to it."""
        sizes = mx.abs(self.logits.astype(mx.float32))
        return float(mx.max(mx.where(sizes < math.inf, sizes, 0.0)))


def plain_steps(
    network: nn.Module,
    context: Sequence[int],
    max_tokens: int,
    stop_tokens: frozenset[int],
    scores: Scores,
    kv: KVQuantization | None = None,
) -> Iterator[PlainStep]:
    """Plain decoding by mlx-lm, each time the token with the best of `scores`, up to a stop token or `max_tokens`.

    The choice is the argmax of `scores` themselves, as ours is. mlx-lm's own is that of logits less their logsumexp in
    the model's type (`generate_step` in mlx_lm/generate.py): in half precision the subtraction can merge near logits,
    so that its own command says another token even against a plain step of the same logits.
    `kv` quantizes the caches from the first token on, as ours are; mlx-lm itself would do so after the prompt.
    """
    scored: dict[int, tuple[mx.array, mx.array]] = {}
    last = 0

    def keep(tokens: mx.array, logits: mx.array) -> mx.array:
        nonlocal last
        values, last = scores(tokens, logits), tokens.size
        scored[last] = logits[0], values[0]
        return values

    def choose(_: mx.array) -> mx.array:
        return mx.argmax(scored[last][1], keepdims=True)

    caches = plain_caches(network, kv)
    steps = generate_step(
        mx.array(list(context)), network,
        max_tokens=max_tokens, sampler=choose, logits_processors=[keep], prompt_cache=caches,
    )  # fmt: skip
    for position, (token, _) in enumerate(steps, len(context)):
        yield PlainStep(int(token), *scored.pop(position))
        if token in stop_tokens:
            return


def target_scores(
    sampling: Sampling, noise: Noise, prompt: Sequence[int], constraint: Constraint | None = None
) -> Scores:
    """(tokens so far [n], logits [1, V]) -> scores [1, V] whose best is the target's token.

    The sampler's own door for the target, with everything after `prompt` uncommitted. Above temperature 0 the noise of
    the token's absolute position is added, which is what `coupled` draws with. `constraint` stands where the answer
    begins.
    """

    def scores(tokens: mx.array, logits: mx.array) -> mx.array:
        vocab_size = logits.shape[-1]
        sampler = Sampler(sampling, noise.seed, prompt, vocab_size, constraint)
        found = sampler.for_target(logits, NO_TOKENS, tokens[len(prompt) :])
        return found if sampling.greedy else found + noise.gumbel("target", tokens.size, vocab_size)

    return scores


def plain_caches(network: nn.Module, kv: KVQuantization | None) -> list[Any]:
    """mlx-lm's own caches, empty, quantized as `kv` says."""
    return [_quantize(layer, kv) if kv else layer for layer in make_prompt_cache(network)]


def _quantize(layer: Any, kv: KVQuantization) -> Any:
    if isinstance(layer, CacheList):
        return CacheList(*(_quantize(part, kv) for part in layer.caches))
    return layer.to_quantized(kv.group_size, kv.bits) if type(layer) is KVCache else layer
