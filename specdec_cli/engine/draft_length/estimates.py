"""Estimated gain of drafting, and price of finding out (pure). Law: a gain is weighed against its price.

Letters: K drafted tokens.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import NamedTuple

from specdec_cli.engine.draft_length.costs import CostRecord
from specdec_cli.speedup import expected_tokens

# Acceptance that a look may hope for, and how many looks fail for each that finds it: the upper end of the usual, and
# copied text, whose deep drafts pay even where the first rows are dear and further ones free (M1, M2).
HOPES = ((0.8, 1), (0.97, 7))
# Expected remaining tokens: 64 plus the number already emitted (reply lengths are long-tailed).
TYPICAL_REPLY_TOKENS = 64
# Uncertainty of the plain-step cost (log): PLAIN_DOUBT / sqrt(samples), plus PLAIN_DOUBT per DOUBT_ROUNDS rounds since
# the last sample. Samples of the last FRESH_ROUNDS rounds leave none.
PLAIN_DOUBT, DOUBT_ROUNDS, FRESH_ROUNDS = 0.1, 256, 16
# A plain step that passes of more rows contradict is measured again after so many drafted rounds.
DISPUTED_ROUNDS = 6


class Choice(NamedTuple):
    """A draft length, the tokens a round of it should yield, and seconds a token."""

    k: int
    tokens: float
    seconds: float


def cheapest(rates: list[float], costs: CostRecord, stake_steps: float = inf) -> Choice:
    """The cheapest token among K = 1 … len(rates) whose rounds lose at most `stake_steps` if nothing is accepted."""
    tokens, plain = expected_tokens(rates), costs.plain_seconds()
    best = None
    for k in range(1, len(tokens)):
        seconds = costs.round_seconds(k)
        if best is not None and seconds > (1 + stake_steps) * plain:
            break
        if best is None or seconds / tokens[k] < best.seconds:
            best = Choice(k, tokens[k], seconds / tokens[k])
    assert best is not None
    return best


def cheapest_lookup(rates: list[float], costs: CostRecord) -> Choice:
    """The cheapest token among lookups of K = 0 … len(rates), which cost nothing but their verification."""
    tokens = expected_tokens(rates)
    return min((Choice(k, t, costs.verify_seconds(k) / t) for k, t in enumerate(tokens)), key=lambda one: one.seconds)


def loss_steps(choice: Choice, costs: CostRecord) -> float:
    """Plain steps that a round of `choice` loses if nothing is accepted."""
    return choice.tokens * choice.seconds / costs.plain_seconds() - 1


def coming_tokens(left_tokens: float, emitted_tokens: int) -> float:
    """Tokens that a reply will probably still have, where it may have `left_tokens` more."""
    return min(left_tokens, TYPICAL_REPLY_TOKENS + emitted_tokens)


def pays(choice: Choice, price_seconds: float, costs: CostRecord, coming: float, failing: int = 1) -> bool:
    """Whether `coming` tokens of `choice` should earn the price back, if for one time they do `failing` times fail."""
    gain = (costs.plain_seconds() - choice.seconds) * coming
    return gain > 0 and gain >= (1 + failing) * price_seconds


def hopes(costs: CostRecord) -> tuple[tuple[float, int], ...]:
    """HOPES that are worth a thought: deep drafts only where their costs are known of this kind of machine."""
    return HOPES if costs.shape_known else HOPES[:1]


def promising(max_k: int, price_seconds: float, costs: CostRecord, coming: float, failures: int) -> Choice | None:
    """The first of HOPES that is worth the price of a look after `failures` looks in a row that did not pay.

    Rule of succession: each such look makes the next one fail once more.
    """
    for rate, failing in hopes(costs):
        choice = cheapest([rate] * max_k, costs)
        if pays(choice, price_seconds, costs, coming, failing * (1 + failures)):
            return choice
    return None


def plain_doubt(costs: CostRecord) -> float:
    """Uncertainty (log) of a plain step's estimate; 0 right after it was measured."""
    seen, age = costs.plain_seen()
    if not seen:
        return costs.assumed.doubt
    if age >= DISPUTED_ROUNDS and (dispute := costs.plain_dispute()):
        return dispute
    return PLAIN_DOUBT * (1 / sqrt(seen) + age / DOUBT_ROUNDS) if age >= FRESH_ROUNDS else 0.0
