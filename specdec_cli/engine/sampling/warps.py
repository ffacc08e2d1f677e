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

GROUP = 64  # columns searched as one by `top_values`; divides the width of nearly every published vocabulary
SMALLEST = 2.0**-126  # below it, float32 is subnormal and some devices read zero


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
        return self.repetition_penalty != 1.0 or self._counts_times

    @property
    def _counts_times(self) -> bool:
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
        return cls(seen, mx.zeros(width, mx.int32) if sampling._counts_times else None)

    def add(self, tokens: mx.array) -> Counts:
        """The counts [V] with the generated `tokens` [n] counted too."""
        one = self._copies(1, [0] * tokens.size, tokens)
        return Counts(*(None if row is None else row[0] for row in (one.seen, one.times)))

    def rows(self, pending: mx.array) -> Counts:
        """[K + 1, V]: row i counts the context and the first i of the `pending` tokens [K], none of them read back."""
        before = [(row, i) for row in range(pending.size + 1) for i in range(row)]
        tokens = pending[mx.array([i for _, i in before])] if before else pending
        return self._copies(pending.size + 1, [row for row, _ in before], tokens)

    def _copies(self, n: int, rows: list[int], tokens: mx.array) -> Counts:
        """[n, V]: n copies of these counts [V], with tokens[j] counted in copy rows[j]."""
        seen = None if self.seen is None else mx.repeat(self.seen[None], n, axis=0)
        times = None if self.times is None else mx.repeat(self.times[None], n, axis=0)
        if rows and seen is not None:
            seen[mx.array(rows), tokens] = True
        if rows and times is not None:
            times = times.at[mx.array(rows), tokens].add(1)
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
    scores = _scores(logits, sampling.temperature)
    weights = mx.exp(scores)
    support = _support(logits, scores, weights, sampling)
    if support is not None:
        scores, weights = mx.where(support, scores, -math.inf), weights * support
    # The best score is 0 and is never cut, so the sum is at least 1.
    return scores - mx.log(mx.sum(weights, axis=-1, keepdims=True))


def adjusted(logits: mx.array, sampling: Sampling, counts: Counts | None = None) -> mx.array:
    """`logits` [N, V] after logit bias and penalties, before temperature: their argmax is greedy decoding."""
    return _penalised(_biased(logits, sampling), sampling, counts)


def draw(log_p: mx.array, gumbel: mx.array) -> mx.array:
    """One token id, int32, per row of `log_p` [..., V], given Gumbel noise of that shape (the Gumbel-max trick)."""
    return mx.argmax(log_p + gumbel, axis=-1).astype(mx.int32)


def _biased(logits: mx.array, sampling: Sampling) -> mx.array:
    if not sampling.logit_bias:
        return logits
    ids, addends = zip(*sampling.logit_bias, strict=True)
    columns = mx.broadcast_to(mx.array(ids), (logits.shape[0], len(ids)))
    biased = mx.take_along_axis(logits, columns, axis=-1).astype(mx.float32) + mx.array(addends, dtype=mx.float32)
    # inf - inf: what either side forbids stays forbidden.
    biased = mx.where(mx.isnan(biased), -math.inf, biased)
    return mx.put_along_axis(logits.astype(mx.float32), columns, biased, axis=-1)


def _penalised(logits: mx.array, sampling: Sampling, counts: Counts | None) -> mx.array:
    """Repetition as in Hugging Face (Keskar et al., arXiv:1909.05858), presence and frequency as in OpenAI's API."""
    if counts is None or not sampling.counts_tokens:
        return logits
    logits = logits.astype(mx.float32)
    if counts.seen is not None and (penalty := sampling.repetition_penalty) != 1.0:
        logits = mx.where(counts.seen, mx.where(logits > 0, logits / penalty, logits * penalty), logits)
    if counts.times is not None and sampling.frequency_penalty:
        logits = logits - sampling.frequency_penalty * counts.times
    if counts.times is not None and sampling.presence_penalty:
        logits = logits - sampling.presence_penalty * (counts.times > 0)
    return logits


def _scores(logits: mx.array, temperature: float) -> mx.array:
    """(logit - best logit) / temperature, float32. Subtracting first keeps a tiny temperature from overflowing."""
    logits = logits.astype(mx.float32)
    best = mx.max(logits, axis=-1, keepdims=True)
    gaps = mx.where(logits == best, 0.0, logits - best)  # inf - inf would be NaN
    return gaps if temperature == 1.0 else gaps / max(temperature, SMALLEST)


def _support(logits: mx.array, scores: mx.array, weights: mx.array, sampling: Sampling) -> mx.array | None:
    """Which tokens [N, V] the cuts keep, bool; None if all are off. Each cut is a threshold on the same order."""
    kept = None
    if 0 < sampling.top_k < logits.shape[-1]:
        kept = logits >= _threshold_of_best(logits, weights, sampling)
    elif sampling.top_p < 1.0:
        keys = _ordered(logits)
        kept = keys >= _nucleus_key(keys, weights, sampling.top_p)
    if sampling.min_p > 0.0:
        likely = scores >= min(math.log(sampling.min_p), 0.0)
        kept = likely if kept is None else kept & likely
    return kept


def _threshold_of_best(logits: mx.array, weights: mx.array, sampling: Sampling) -> mx.array:
    """The smallest logit [N, 1] that top-k, and top-p after it, keep.

    Whatever beats a kept token is among the k best, so top-p needs no other values; only the mass of the whole,
    which may hold more than k tokens on a tie, is summed over the row.
    """
    best = top_values(logits, sampling.top_k)
    if sampling.top_p >= 1.0:
        return best[:, :1]
    total = mx.sum(weights * (logits >= best[:, :1]), axis=-1, keepdims=True)
    mass = mx.exp(_scores(best, sampling.temperature))
    beaten_by = mx.cumsum(mass, axis=-1, reverse=True, inclusive=False)
    # The last value is kept even at top_p 0. A tied group enters by its first member, the one beaten by least.
    kept = beaten_by < max(sampling.top_p, SMALLEST) * total
    threshold: mx.array = mx.min(mx.where(kept, best, math.inf), axis=-1, keepdims=True)
    return threshold


def _ordered(logits: mx.array) -> mx.array:
    """Unsigned integers [N, V] in the order of `logits`, as wide as their floats."""
    bits, kind = (16, mx.uint16) if logits.dtype.size == 2 else (32, mx.uint32)
    raw = (logits + 0).view(kind)  # + 0: -0.0 and 0.0 are one value
    # Negative floats count downwards: all their bits flip, of the others only the sign.
    keys: mx.array = raw ^ ((raw >> (bits - 1)) * (2 ** (bits - 1) - 1) + 2 ** (bits - 1))
    return keys


def _nucleus_key(keys: mx.array, weights: mx.array, top_p: float) -> mx.array:
    """The smallest key [N, 1] of the nucleus: a token is in it iff the mass of all strictly better ones is < top_p.

    Holtzman et al., arXiv:1904.09751: the smallest set of the best tokens whose mass reaches top_p. The threshold is
    found bit by bit, so the work is one masked sum a bit whatever the nucleus' size, and nothing is sorted. Exact:
    rounding keeps a sum of non-negative terms in a fixed order monotone.
    """
    top = keys.dtype.size * 8 - 1
    limit = max(top_p, SMALLEST) * mx.sum(weights, axis=-1, keepdims=True)
    found = mx.zeros((keys.shape[0], 1), keys.dtype)
    for bit in range(top, -1, -1):
        candidate = found + (2**bit - 1)
        beaten_by = mx.sum((keys > candidate) * weights, axis=-1, keepdims=True)
        found = mx.where(beaten_by < limit, found, found + 2**bit)
    return found


def top_values(values: mx.array, k: int) -> mx.array:
    """The k largest of each row of `values` [N, V], ascending: [N, k]. Exact, and without ordering V columns.

    The columns are cut into groups; a value outside the k groups with the largest maxima is at most each of those k
    maxima, so the k largest values are found inside them.
    """
    n, width = values.shape
    if k * GROUP < width:
        groups = mx.pad(values, [(0, 0), (0, -width % GROUP)], constant_values=-math.inf) if width % GROUP else values
        groups = groups.reshape(n, -1, GROUP)
        chosen = mx.argpartition(-mx.max(groups, axis=-1), k - 1, axis=-1)[:, :k, None]
        values = mx.take_along_axis(groups, mx.broadcast_to(chosen, (n, k, GROUP)), axis=1).reshape(n, -1)
    return mx.sort(mx.topk(values, k, axis=-1), axis=-1)
