"""Which draft tokens are accepted above temperature 0, and the token after them.

Law: with draft tokens drawn from q, the emitted tokens follow the target's p, whatever q is.
Letters: K drafted tokens x_1 … x_K, V vocabulary width; p_i, q_i the distributions after the context and x_1 … x_i,
so that x_{i+1} was drawn from q_i. log_p is [K + 1, V], log_q [K, V], or None for a one-hot draft (greedy, n-gram),
which is judged without building its rows. Both are normalised, after every warp (`sampling.log_probs`). Everything
stays on the device as lazy float32; `accepted` and `next` are int32 scalars.

* token: Leviathan et al. 2023 (arXiv:2211.17192, Algorithm 1), Chen et al. 2023 (arXiv:2302.01318, Algorithm 2).
* block: Sun et al. 2024 (arXiv:2403.10444, Algorithm 2). Its residual is that of a p scaled by what the block has
  left over, not token's.
* coupled: Daliri, Musco, Suresh 2024 (arXiv:2408.07978); match: mlx-lm's rule. Both emit the target's own draws
  and differ only in the noise that drew the draft, so one function serves both.

The first two are split into a plan, a deterministic function whose law can be enumerated, and a draw.

Not in the papers: what rounding and padding can produce.
* q(x) = 0 for a drafted x contradicts the premise; x is then accepted iff p(x) > 0, the limit of min(1, p/q).
* A residual without mass falls back to p. It means p <= q everywhere (w p <= q under block). As both sum to 1, p = q
  then, so token accepts x for certain; block has h_i = 0 there if w_i < 1, and if w_i = 1 it has w_{i+1} = 1 and so
  on, up to a later h_j = 1. Such a row is reached with the odds of a rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.warps import draw

HUGE = 3e38  # finite in float32


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything but the dice. `accept` [K]: under token, the odds that x_{i+1} is accepted given that x_1 … x_i are;
    under block the paper's h_1 … h_K. `weight` [K + 1] scales p in the residual: the paper's p_i under block, 1 under
    token.
    """

    accept: mx.array
    weight: mx.array
    draft_tokens: mx.array
    log_q: mx.array | None
    log_p: mx.array

    def residual_log(self, accepted: mx.array) -> mx.array:
        """The log law [n, V] of the next token if exactly `accepted` [n] draft tokens are accepted: one row each.

        norm(max(0, weight p - q)), and p itself after the last draft token. Only the rows asked for are computed.
        """
        k = self.draft_tokens.size
        p = self.log_p[accepted]
        if not k:
            return p
        rejected = mx.minimum(accepted, k - 1)  # the row of q, and of the rejected draft token
        if self.log_q is None:
            # Without its one token, p keeps its proportions; weight p <= 1 = q there.
            rejected_token = mx.arange(p.shape[-1]) == self.draft_tokens[rejected][:, None]
            rest = mx.where(rejected_token, 0.0, mx.exp(p))
        else:
            rest = excess(p, self.log_q[rejected], self.weight[accepted])
        mass = mx.sum(rest, axis=-1, keepdims=True)
        judged = (accepted < k)[:, None] & (mass > 0)
        return mx.where(judged, mx.log(rest) - mx.log(mass), p)


def excess(log_p: mx.array, log_q: mx.array, weight: mx.array) -> mx.array:
    """max(0, weight p - q) [n, V] for `weight` [n]."""
    return mx.maximum(weight[:, None] * mx.exp(log_p) - mx.exp(log_q), 0.0)


def plan_token(draft_tokens: mx.array, log_q: mx.array | None, log_p: mx.array) -> Plan:
    """x is accepted with probability min(1, p(x) / q(x)); else the next token comes from norm(max(0, p - q))."""
    accept = mx.exp(mx.minimum(_log_ratios(draft_tokens, log_q, log_p), 0.0))
    return Plan(accept, mx.ones(log_p.shape[0]), draft_tokens, log_q, log_p)


def plan_block(draft_tokens: mx.array, log_q: mx.array | None, log_p: mx.array) -> Plan:
    """Accepts the longest prefix x_1 … x_i that passes its own test, h_i; see `draw_block`.

    w_0 = 1, w_i = min(1, w_{i-1} p(x_i) / q(x_i)); h_K = w_K, and before it h_i = S_i / (S_i + 1 - w_i) with
    S_i = sum max(0, w_i p_i - q_i). Where that is 0 / 0, w_i = 1 and p = q: x_{i+1} is accepted anyway, and h_i = 1.
    """
    k = draft_tokens.size
    log_ratios = _log_ratios(draft_tokens, log_q, log_p)
    log_weights = [mx.array(0.0)]
    for i in range(k):
        log_weights.append(mx.minimum(log_weights[-1] + log_ratios[i], 0.0))
    log_weight = mx.stack(log_weights)
    weight = mx.exp(log_weight)
    if k < 2:
        return Plan(weight[1:], weight, draft_tokens, log_q, log_p)
    if log_q is None:
        spare = weight[1:k] * -mx.expm1(log_ratios[1:])  # all of w p but its drafted token
    else:
        spare = mx.sum(excess(log_p[1:k], log_q[1:], weight[1:k]), axis=-1)
    whole = spare - mx.expm1(log_weight[1:k])  # S + 1 - w, without cancellation
    h = mx.where(whole > 0, spare / whole, 1.0)
    return Plan(mx.concatenate([h, weight[k:]]), weight, draft_tokens, log_q, log_p)


def draw_token(plan: Plan, noise: Noise, position: int) -> tuple[mx.array, mx.array]:
    """(accepted, next) under token. `position` must be new in every round of an answer: see `noise`."""
    passes = noise.uniform("accept", position, plan.accept.size) <= plan.accept
    return _with_next(plan, mx.sum(mx.cumprod(passes.astype(mx.int32))), noise, position)


def draw_block(plan: Plan, noise: Noise, position: int) -> tuple[mx.array, mx.array]:
    """(accepted, next) under block: accepted is the largest i whose own test passes, whatever the earlier ones say.

    `position` must be new in every round of an answer: see `noise`.
    """
    passes = noise.uniform("accept", position, plan.accept.size) <= plan.accept
    lengths = mx.arange(1, plan.accept.size + 1) * passes
    return _with_next(plan, mx.max(mx.concatenate([mx.zeros(1, mx.int32), lengths])), noise, position)


def draw_coupled(draft_tokens: mx.array, log_p: mx.array, gumbel: mx.array) -> tuple[mx.array, mx.array]:
    """(accepted, next): the target's own draws with `gumbel` [K + 1, V], and how many of them were drafted.

    `gumbel` is the stream "target" at the absolute positions of the K + 1 tokens.
    """
    targets = draw(log_p, gumbel)
    accepted = common_prefix(draft_tokens, targets)
    return accepted, targets[accepted]


def common_prefix(draft_tokens: mx.array, targets: mx.array) -> mx.array:
    """Number of leading `draft_tokens` [K] equal to `targets` [K + 1]: an int32 scalar."""
    return mx.sum(mx.cumprod((draft_tokens.astype(mx.int32) == targets[:-1]).astype(mx.int32)))


def _log_ratios(draft_tokens: mx.array, log_q: mx.array | None, log_p: mx.array) -> mx.array:
    """log p(x_i) - log q(x_i) [K]; -inf where p is 0, a huge finite number where only q is."""
    columns = draft_tokens.astype(mx.int32)[:, None]
    p = mx.take_along_axis(log_p[: draft_tokens.size], columns, axis=-1)[:, 0]
    if log_q is None:
        return p
    q = mx.take_along_axis(log_q, columns, axis=-1)[:, 0]
    # Finite, since block adds ratios up, and -inf + inf would be NaN.
    return p - mx.maximum(q, -HUGE)


def _with_next(plan: Plan, accepted: mx.array, noise: Noise, position: int) -> tuple[mx.array, mx.array]:
    gumbel = noise.gumbel("residual", position, plan.log_p.shape[-1])
    return accepted.astype(mx.int32), draw(plan.residual_log(accepted[None])[0], gumbel)
