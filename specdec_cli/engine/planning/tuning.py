"""Every number that `-k auto` was tuned with, and what chose it (pure). What a machine or a text decides is measured.

Behind each number: what another value changed, in points of speed against the best K on code and prose, then against
plain decoding with hostile drafts, on the simulated chips of the tests: 13 chips and drafts, 32 and 128 tokens, cold
and from an earlier process, calm and restless. These numbers reach 96.9 and 97.1. A change under 0.1 is noise.
"""

from math import exp

# A judged draft token's weight fades to 1/e after 32 rounds. 16: +0.0, −0.0; 64: −0.1, +0.0.
FADE = exp(-1 / 32)
# Acceptance before anything was seen, worth WEIGHT judged tokens: the lower half of the 0.5 to 0.8 of published pairs.
# PRIOR 0.4: +0.1, +0.1; 0.8: −0.0, −0.4. WEIGHT 2: 0, +0.2; 8: +0.5, −0.4.
PRIOR, WEIGHT = 0.6, 4.0
# The upper end of the usual acceptance: where not even this would pay, nothing is tried.
# 0.7: −0.1, +0.6; 0.9: −0.2, −0.5.
HOPED_RATE = 0.8
# Standard deviations by which acceptance may be better than it seems, while nothing of the budget is lost.
# 0.75: −0.1, +0.1; 3: +0.1, −0.2.
HOPE = 1.5

# Rounds of one size whose lower median counts: outliers are slow. 4: +0.1, −0.1; 18: 0, 0.
RECENT_ROUNDS = 9
# The machine has turned (load, heat, battery) when so many rounds of one size in a row are off by this factor.
# TURN_ROUNDS 1: −0.7, +0.1; 6: +0.1, −0.1. TURN 1.04: −0.1, 0; 1.16: 0, −0.1.
TURN_ROUNDS, TURN = 3, 1.08
# One round alone, which may be off by anything, moves an estimate by this factor at most. 1.15: +0.1, 0; 1.7: +0.1, 0.
SPIKE = 1.35
# Fewer tokens in one read say more about overhead than about the cost of a token. 16, 64: 0, 0.
PREFILL_TOKENS = 32
# How far (log) assumed costs may be off: of an unknown GPU; as an earlier process measured them.
# UNKNOWN_DOUBT: 0, 0, for the chips are known. MEASURED_DOUBT 0.05: 0, 0; 0.2: −2.6, +0.6.
UNKNOWN_DOUBT, MEASURED_DOUBT = 0.5, 0.1
# K at most while nothing was measured on this machine. 1: 0, +0.1; 4: 0, 0.
COLD_K = 2

# Share of the tokens that finding out may lose, and plain steps that it may lose in any reply.
# SHARE 0.01: −0.2, +0.8; 0.04: +0.2, −0.5. BUDGET 1: −0.1, +0.2; 4: 0, −0.2.
SHARE, BUDGET = 0.02, 2.0
# Rounds that a spell of drafting is tried for, before it may end. 2: −0.4, 0; 8: −0.1, −0.2.
TRIED_ROUNDS = 4
# Tokens between two spells, doubled after each that did not pay.
# FIRST_WAIT 4: 0, −0.1; 16: −0.1, +0.1. LAST_WAIT: 0, 0.
FIRST_WAIT, LAST_WAIT = 8, 512
# A reply still has this many tokens and as many as it had so far: lengths are long-tailed. 32: +0.1, +0.3; 128: 0, 0.
TYPICAL_TOKENS = 64
