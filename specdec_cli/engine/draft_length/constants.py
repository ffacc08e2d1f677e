"""Every constant of `-k auto`, with its reason (pure). What a machine or a text decides is measured instead."""

from math import exp

# Acceptance. A count weighs 1/e after 32 rounds: while the text stays of one kind, a rate is known within 0.06.
FADE = exp(-1 / 32)
# Before anything was seen: the lower half of the usual 0.5-0.8 of published pairs, which weighs four judged tokens.
PRIOR, WEIGHT = 0.6, 4.0
# The upper end of the usual acceptance: where not even this would pay, nothing is tried.
HOPED_RATE = 0.8

# Costs. Rounds of one size whose median counts (the lower one: outliers are slow).
RECENT_ROUNDS = 15
# The machine has turned (load, heat, battery) when so many rounds of one size in a row are off by this factor.
TURN_ROUNDS, TURN = 5, 1.08
# A size that was not measured for so many drafted rounds is read off those that were.
STALE_ROUNDS = 32
# One round alone, which may be off by anything, moves an estimate by this factor at most.
SPIKE = 1.35
# Fewer tokens in one read say more about overhead than about the cost of a token.
PREFILL_TOKENS = 32
# Doubts (log) about assumed costs: nothing is known of the machine's GPU; it was measured by an earlier process.
UNKNOWN_DOUBT, MEASURED_DOUBT = 0.5, 0.1

# Probes. Share of the tokens that finding out may lose, and plain steps that it may lose in any reply.
SHARE, BUDGET = 0.02, 2.0
# Rounds that a probe takes before its draft is as deep as it pays.
PROBE_ROUNDS = 4
# Standard deviations by which acceptance may be better than it seems, while nothing of the budget is lost.
HOPE = 1.5
# Tokens between probes, doubled after each that did not pay.
FIRST_WAIT, LAST_WAIT = 8, 512
# A reply still has this many tokens and as many as it had so far: lengths are long-tailed.
TYPICAL_TOKENS = 64
