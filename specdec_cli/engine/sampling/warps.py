"""Logits to the distribution that is sampled from, and a draw from it.

Law: `log_probs` is the one place where logits become probabilities, for target and draft alike; a warp that is off
adds no operation. Nothing of size V leaves the device, and nothing is read back.
Letters: K pending draft tokens, N rows (positions), V vocabulary width.

The order is Hugging Face's, because the defaults come from `generation_config.json`: logit bias, penalties,
temperature, top-k, top-p, min-p. Tie rule: the three cuts keep or drop tokens of equal logits together, so a
support is a function of the values alone, not of their order (ties at the edge may make it larger than k).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.engine.device import fused
from specdec_cli.engine.sampling.cuts import cut_log_probs, make_cuts


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of the warps; every default is off, and temperature 0 is greedy. Values are validated elsewhere.

    `logit_bias` holds (token id, addend) pairs with distinct ids.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def counts_tokens(self) -> bool:
        """Whether the distribution depends on which tokens came before, beyond the logits."""
        return self.repetition_penalty != 1.0 or self.counts_times

    @property
    def counts_times(self) -> bool:
        """Whether it depends on how often."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Token counts for the penalties: `seen` bool (prompt and generated), `times` int32 (generated only).

    Both are [V], or [N, V] after `rows`; None where no active penalty asks, since values that nobody evaluates would
    pile up as an ever longer graph.
    """

    seen: mx.array | None
    times: mx.array | None

    @classmethod
    def start(cls, sampling: Sampling, prompt: Sequence[int], width: int) -> Counts:
        """The counts after `prompt`, before the first generated token; `width` is V."""
        seen = mx.zeros(width, mx.bool_) if sampling.repetition_penalty != 1.0 else None
        if seen is not None and len(prompt):
            seen[mx.array(list(prompt))] = True
        return cls(seen, mx.zeros(width, mx.int32) if sampling.counts_times else None)

    def add(self, tokens: mx.array) -> Counts:
        """The counts [V] with the generated `tokens` [n] counted too."""
        one = self._copies(1, [0] * tokens.size, tokens)
        return Counts(*(None if row is None else row.reshape(-1) for row in (one.seen, one.times)))

    def rows(self, pending: mx.array) -> Counts:
        """[K + 1, V]: row i counts the context and the first i of the `pending` tokens [K], none of them read back."""
        before = [(row, i) for row in range(pending.size + 1) for i in range(row)]
        tokens = pending[mx.array([i for _, i in before])] if before else pending
        return self._copies(pending.size + 1, [row for row, _ in before], tokens)

    def _copies(self, n: int, rows: list[int], tokens: mx.array) -> Counts:
        """[n, V]: n copies of these counts [V], with tokens[j] counted in copy rows[j]."""
        seen = None if self.seen is None else mx.broadcast_to(self.seen, (n, self.seen.size))
        times = None if self.times is None else mx.broadcast_to(self.times, (n, self.times.size))
        at = mx.array(rows)
        if rows and seen is not None:
            seen[at, tokens] = True
        if rows and times is not None:
            times = times.at[at, tokens].add(1)
        return Counts(seen, times)


def log_probs(logits: mx.array, sampling: Sampling, counts: Counts | None = None) -> mx.array:
    """Normalised log-probabilities [N, V], float32, of `logits` [N, V]; -inf outside the support.

    `counts` is [V] or [N, V]; needed while `sampling.counts_tokens`. Temperature 0 is one-hot at the first argmax.
    A row with +inf logits puts its mass uniformly on them; a row of nothing but -inf is not a distribution.
    """
    logits = adjusted(logits, sampling, counts)
    if sampling.greedy:
        best = mx.argmax(logits, axis=-1, keepdims=True)
        return mx.where(mx.arange(logits.shape[-1]) == best, 0.0, -math.inf)
    return cut_log_probs(logits, make_cuts(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p))


def adjusted(logits: mx.array, sampling: Sampling, counts: Counts | None = None) -> mx.array:
    """`logits` [N, V] after logit bias and penalties, before temperature: their argmax is greedy decoding."""
    return _penalised(_biased(logits, sampling), sampling, counts)


def best_tokens(scores: mx.array) -> mx.array:
    """The id, int32, of the first of the best of each row of `scores` [..., V]."""
    # Viewed, not converted, which would be one more kernel: an id is below 2^31.
    return mx.argmax(scores, axis=-1).view(mx.int32)


def draw(log_p: mx.array, gumbel: mx.array) -> mx.array:
    """One token id, int32, per row of `log_p` [..., V], given Gumbel noise of that shape (the Gumbel-max trick)."""
    return best_tokens(log_p + gumbel)


def _biased(logits: mx.array, sampling: Sampling) -> mx.array:
    if not sampling.logit_bias:
        return logits
    ids, addends = zip(*sampling.logit_bias, strict=True)
    columns = mx.broadcast_to(mx.array(ids), (logits.shape[0], len(ids)))
    biased = _plus(mx.take_along_axis(logits, columns, axis=-1), mx.array(addends, dtype=mx.float32))
    return mx.put_along_axis(logits.astype(mx.float32), columns, biased, axis=-1)


@fused
def _plus(logits: mx.array, addends: mx.array) -> mx.array:
    biased = logits.astype(mx.float32) + addends
    # inf - inf: what either side forbids stays forbidden.
    return mx.where(mx.isnan(biased), -math.inf, biased)


def _penalised(logits: mx.array, sampling: Sampling, counts: Counts | None) -> mx.array:
    """Repetition as in Hugging Face (Keskar et al., arXiv:1909.05858), presence and frequency as in OpenAI's API."""
    if counts is None:
        return logits
    if counts.seen is not None and (penalty := sampling.repetition_penalty) != 1.0:
        logits = _less_repeated(logits, counts.seen, mx.array(penalty))
    if counts.times is not None and sampling.counts_times:
        addends = mx.array(sampling.frequency_penalty), mx.array(sampling.presence_penalty)
        logits = _less_frequent(logits, counts.times, *addends)
    return logits


@fused
def _less_repeated(logits: mx.array, seen: mx.array, penalty: mx.array) -> mx.array:
    logits = logits.astype(mx.float32)
    return mx.where(seen, mx.where(logits > 0, logits / penalty, logits * penalty), logits)


@fused
def _less_frequent(logits: mx.array, times: mx.array, frequency: mx.array, presence: mx.array) -> mx.array:
    return logits.astype(mx.float32) - frequency * times - presence * (times > 0)
