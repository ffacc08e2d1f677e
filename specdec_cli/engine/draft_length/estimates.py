"""Estimated gain of drafting, and price of finding out (pure). Law: a gain is weighed against its price.

Letters: K drafted tokens.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import NamedTuple

from specdec_cli.engine.draft_length.costs import CostRecord
from specdec_cli.request import MAX_DRAFT
from specdec_cli.speedup import expected_tokens

# What a look may hope for: the upper end of the usual acceptance. Where not even this would pay, nothing is tried.
HOPED_RATE = 0.8
# Rule of succession: after f looks in a row that did not pay, the next one pays with odds of 1 in f + 2.
DOUBTED = 2
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
    """The cheapest token of a lookup, which costs nothing but its rows; K = 0, a plain step, is one of the choices.

    Where nothing is known of the machine, K is at most twice what was verified at once: the next one tells the cost.
    """
    reach = MAX_DRAFT if costs.shape_known else 2 * max(costs.most_rows - 1, 1)
    tokens = expected_tokens(rates[:reach])
    choices = [Choice(k, found, costs.verify_seconds(k) / found) for k, found in enumerate(tokens)]
    return min(choices, key=lambda choice: choice.seconds)


def loss_steps(choice: Choice, costs: CostRecord) -> float:
    """Plain steps that a round of `choice` loses if nothing is accepted."""
    return choice.tokens * choice.seconds / costs.plain_seconds() - 1


def coming_tokens(left_tokens: float, emitted_tokens: int) -> float:
    """Tokens that a reply will probably still have, where it may have `left_tokens` more."""
    return min(left_tokens, TYPICAL_REPLY_TOKENS + emitted_tokens)


def pays(choice: Choice, price_seconds: float, costs: CostRecord, coming: float, failures: int = 0) -> bool:
    """Whether `coming` tokens of `choice` should earn the price back, at the odds that `failures` leave."""
    gain = (costs.plain_seconds() - choice.seconds) * coming
    return gain > 0 and gain >= (DOUBTED + failures) * price_seconds


def plain_doubt(costs: CostRecord) -> float:
    """Uncertainty (log) of a plain step's estimate; 0 right after it was measured."""
    seen, age = costs.plain_seen()
    if not seen:
        return costs.assumed.doubt
    if age >= DISPUTED_ROUNDS and (dispute := costs.plain_dispute()):
        return dispute
    return PLAIN_DOUBT * (1 / sqrt(seen) + age / DOUBT_ROUNDS) if age >= FRESH_ROUNDS else 0.0
