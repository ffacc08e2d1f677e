"""Every number that `-k auto` was tuned with, and what chose it (pure). What a machine or a text decides is measured.

"Chips" are the simulated ones of the tests: nine Apple GPUs, three drafts each, code, prose and hostile texts of 32 to
512 tokens, calm and disturbed, cold and from an earlier process.
"""

from math import exp

# A judged draft token's weight fades to 1/e after 32 rounds: a rate is then known within 0.06.
FADE = exp(-1 / 32)
# Acceptance before anything was seen: the lower half of the 0.5 to 0.8 of published pairs, worth four judged tokens.
PRIOR, WEIGHT = 0.6, 4.0
# The upper end of the usual acceptance: where not even this would pay, nothing is tried.
HOPED_RATE = 0.8
# Standard deviations by which acceptance may be better than it seems, while nothing of the budget is lost.
HOPE = 1.5

# Rounds of one size whose lower median counts: outliers are slow.
RECENT_ROUNDS = 9
# The machine has turned (load, heat, battery) when so many rounds of one size in a row are off by this factor.
TURN_ROUNDS, TURN = 3, 1.08
# One round alone, which may be off by anything, moves an estimate by this factor at most.
SPIKE = 1.35
# Fewer tokens in one read say more about overhead than about the cost of a token.
PREFILL_TOKENS = 32
# How far (log) assumed costs may be off: of an unknown GPU; as an earlier process measured them.
UNKNOWN_DOUBT, MEASURED_DOUBT = 0.5, 0.1
# K at most while nothing was measured on this machine.
COLD_K = 2

# Share of the tokens that finding out may lose, and plain steps that it may lose in any reply.
SHARE, BUDGET = 0.02, 2.0
# Rounds that a spell of drafting is tried for, before it may end.
TRIED_ROUNDS = 4
# Tokens between two spells, doubled after each that did not pay.
FIRST_WAIT, LAST_WAIT = 8, 512
# A reply still has this many tokens and as many as it had so far: lengths are long-tailed.
TYPICAL_TOKENS = 64
