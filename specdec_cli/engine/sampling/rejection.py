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

from specdec_cli.engine.device import fused
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.warps import draw

NONE_ACCEPTED = mx.array(0, mx.int32)
HUGE = 1e30  # more than any log ratio; the sum of as many as a draft has tokens is finite in float32


@dataclass(frozen=True, slots=True, eq=False)
class RejectionOdds:
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
        if not k:
            return self.log_p[: accepted.size]
        p = self.log_p[accepted]
        rejected = mx.minimum(accepted, k - 1)  # the row of q, and of the rejected draft token
        if self.log_q is None:
            ids = mx.arange(p.shape[-1], dtype=mx.int32)
            rest = _without(p, ids, self.draft_tokens[rejected][:, None])
        else:
            rest = excess(p, self.log_q[rejected], self.weight[accepted][:, None])
        left = accepted[:, None] < k
        return _residual(p, rest, mx.sum(rest, axis=-1, keepdims=True), left)


@fused
def excess(log_p: mx.array, log_q: mx.array, weight: mx.array) -> mx.array:
    """max(0, weight p - q) [n, V] for `weight` [n, 1]."""
    return mx.maximum(weight * mx.exp(log_p) - mx.exp(log_q), 0.0)


@fused
def _without(log_p: mx.array, ids: mx.array, token: mx.array) -> mx.array:
    """p [n, V] but for its `token` [n, 1]. Without it p keeps its proportions, as weight p <= 1 = q there."""
    return mx.where(ids == token, 0.0, mx.exp(log_p))


@fused
def _residual(log_p: mx.array, rest: mx.array, mass: mx.array, left: mx.array) -> mx.array:
    """norm(rest) where a draft token is `left` to reject and `rest` has mass, else p."""
    return mx.where(left & (mass > 0), mx.log(rest) - mx.log(mass), log_p)


def plan_token(draft_tokens: mx.array, log_q: mx.array | None, log_p: mx.array) -> RejectionOdds:
    """x is accepted with probability min(1, p(x) / q(x)); else the next token comes from norm(max(0, p - q))."""
    accept = _odds(_log_ratios(draft_tokens, log_q, log_p))
    return RejectionOdds(accept, mx.array([1.0] * log_p.shape[0]), draft_tokens, log_q, log_p)


def plan_block(draft_tokens: mx.array, log_q: mx.array | None, log_p: mx.array) -> RejectionOdds:
    """Accepts the longest prefix x_1 … x_i that passes its own test, h_i; see `draw_block`.

    w_0 = 1, w_i = min(1, w_{i-1} p(x_i) / q(x_i)); h_K = w_K, and before it h_i = S_i / (S_i + 1 - w_i) with
    S_i = sum max(0, w_i p_i - q_i). Where that is 0 / 0, w_i = 1 and p = q: x_{i+1} is accepted anyway, and h_i = 1.
    """
    k = draft_tokens.size
    if not k:
        return RejectionOdds(mx.array([], mx.float32), mx.array([1.0]), draft_tokens, log_q, log_p)
    log_ratios = _log_ratios(draft_tokens, log_q, log_p)
    log_weight = mx.min(mx.cumsum(_from_each_start(log_ratios), axis=-1), axis=0)
    weight = mx.concatenate([mx.array([1.0]), mx.exp(log_weight)])
    if k == 1:
        return RejectionOdds(weight[1:], weight, draft_tokens, log_q, log_p)
    if log_q is None:
        accept = _block_odds_of_one_hot(log_ratios[1:], log_weight[:-1])
    else:
        spare = mx.sum(excess(log_p[1:k], log_q[1:], weight[1:k, None]), axis=-1)
        accept = _block_odds(spare, log_weight[:-1])
    return RejectionOdds(mx.concatenate([accept, weight[k:]]), weight, draft_tokens, log_q, log_p)


@fused
def _odds(log_ratios: mx.array) -> mx.array:
    return mx.exp(mx.minimum(log_ratios, 0.0))


@fused
def _from_each_start(log_ratios: mx.array) -> mx.array:
    """[K + 1, K]: row j holds `log_ratios` [K] from column j on, before it 0.

    w_i = min(1, w_{i-1} r_i) is the least product of r_{j+1} … r_i over all starts j <= i, as rounding is monotone. So
    the least of these rows' running sums is log w_i, without a kernel for every i; the zeros are the bound 1.
    """
    k = log_ratios.shape[0]
    started = mx.array([[i >= j for i in range(k)] for j in range(k + 1)])
    return mx.where(started, log_ratios, 0.0)


def _h(spare: mx.array, log_weight: mx.array) -> mx.array:
    whole = spare - mx.expm1(log_weight)  # S + 1 - w, without cancellation
    return mx.where(whole > 0, spare / whole, 1.0)


_block_odds = fused(_h)


@fused
def _block_odds_of_one_hot(log_ratios: mx.array, log_weight: mx.array) -> mx.array:
    """S is all of w p but its drafted token."""
    return _h(mx.exp(log_weight) * -mx.expm1(log_ratios), log_weight)


def draw_token(plan: RejectionOdds, noise: Noise, position: int) -> tuple[mx.array, mx.array]:
    """(accepted, next) under token. `position` must be new in every round of an answer: see `noise`."""
    if not plan.accept.size:
        return _with_next(plan, NONE_ACCEPTED, noise, position)
    lengths = _passed_before(noise.uniform("accept", position, plan.accept.size), plan.accept)
    return _with_next(plan, mx.min(lengths), noise, position)


def draw_block(plan: RejectionOdds, noise: Noise, position: int) -> tuple[mx.array, mx.array]:
    """(accepted, next) under block: accepted is the largest i whose own test passes, whatever the earlier ones say.

    `position` must be new in every round of an answer: see `noise`.
    """
    if not plan.accept.size:
        return _with_next(plan, NONE_ACCEPTED, noise, position)
    lengths = _passed_at(noise.uniform("accept", position, plan.accept.size), plan.accept)
    return _with_next(plan, mx.max(lengths), noise, position)


def _where_not(passed: mx.array) -> mx.array:
    """The place of each of K that did not pass, K for the others: [K]. K as a number would be a kernel for every K."""
    k = passed.shape[0]
    return mx.where(passed, mx.array([k] * k, mx.int32), mx.array(list(range(k)), mx.int32))


@fused
def _passed_before(uniform: mx.array, accept: mx.array) -> mx.array:
    """Of each draft token that fails its test how many came before, K of the others: [K]."""
    return _where_not(uniform <= accept)


@fused
def _passed_at(uniform: mx.array, accept: mx.array) -> mx.array:
    """Of each block that passes its test the length, 0 of the others: [K]."""
    lengths = mx.array(list(range(1, accept.shape[0] + 1)), mx.int32)
    return mx.where(uniform <= accept, lengths, 0)


def draw_coupled(draft_tokens: mx.array, log_p: mx.array, gumbel: mx.array) -> tuple[mx.array, mx.array]:
    """(accepted, next): the target's own draws with `gumbel` [K + 1, V], and how many of them were drafted.

    `gumbel` is the stream "target" at the absolute positions of the K + 1 tokens.
    """
    return accept_equal(draft_tokens, draw(log_p, gumbel))


def accept_equal(draft_tokens: mx.array, targets: mx.array) -> tuple[mx.array, mx.array]:
    """(accepted, next): how many leading `draft_tokens` [K] equal `targets` [K + 1], and the target after them."""
    if not draft_tokens.size:
        return NONE_ACCEPTED, targets.reshape(())
    accepted = mx.min(_equal_before(draft_tokens, targets[:-1]))
    return accepted, targets[accepted]


@fused
def _equal_before(draft_tokens: mx.array, targets: mx.array) -> mx.array:
    """Of each draft token that differs how many came before, K of the others: [K]."""
    return _where_not(draft_tokens == targets)


def _log_ratios(draft_tokens: mx.array, log_q: mx.array | None, log_p: mx.array) -> mx.array:
    """log p(x_i) - log q(x_i) [K]; -inf where p is 0, a huge finite number where only q is."""
    columns = draft_tokens[:, None]
    p = mx.take_along_axis(log_p[: draft_tokens.size], columns, axis=-1).reshape(-1)
    if log_q is None:
        return p
    return _ratio(p, mx.take_along_axis(log_q, columns, axis=-1).reshape(-1))


@fused
def _ratio(p: mx.array, q: mx.array) -> mx.array:
    # Finite, since block adds ratios up, and -inf + inf would be NaN.
    return p - mx.maximum(q, -HUGE)


def _with_next(plan: RejectionOdds, accepted: mx.array, noise: Noise, position: int) -> tuple[mx.array, mx.array]:
    gumbel = noise.gumbel("residual", position, plan.log_p.shape[-1])
    law = plan.residual_log(accepted.reshape(1)).reshape(-1)
    return accepted, draw(law, gumbel)
