"""Adaptive K after a reply that was disturbed: the next ones are as near to the best K as if nothing had been.

A session of five replies; the machine is loaded during the second one alone. `kept` is seconds of the best fixed K over
those of `Adaptive`, in the three replies after it. Plays are seeded: a failure is a change, never chance.
"""

from functools import cache
from statistics import fmean

import pytest

from fakes.chips import Case, calm, cases, crowded, halved
from fakes.machine import MACHINES, Text, play
from specdec_cli.engine.draft_length.adaptive import Adaptive
from specdec_cli.engine.draft_length.costs import Costs
from specdec_cli.engine.draft_length.fixed import Fixed

pytestmark = pytest.mark.slow  # simulations

TOKENS, AFTER = 96, (2, 3, 4)
TEXT = Text("code of a draft that is right in seven of ten", ((1, 0.7, 1.0),))
KS = (0, 1, 2, 3, 4, 5, 6, 8)
# Nothing is known of the first ones; of the others the chip is.
UNKNOWN = [Case(machine, Costs.of_ratio(machine.draft_step)) for machine in MACHINES]
KNOWN = cases()[9:27:3]
# Mean on known chips; on all machines the mean, and the share of sessions under 0.9. After a crowd the old costs are
# believed for too long in one session of six.
LEAST = {calm: (0.99, 0.985, 0.02), halved: (0.985, 0.98, 0.02), crowded: (0.97, 0.94, 0.17)}
loads = pytest.mark.parametrize("load", LEAST, ids=lambda load: load.__name__)


def seed_of(session, reply):
    return 1000 * session + 10 * reply


@cache
def best_seconds(case, session):
    """Of one K in all three replies."""
    return min(sum(play(case.machine, TEXT, Fixed(k), TOKENS, seed_of(session, i)).seconds for i in AFTER) for k in KS)


def kept(case, load, session):
    length, took = Adaptive(case.assumed), 0.0
    for i in range(max(AFTER) + 1):
        length.begin(TOKENS, 64)
        disturbed = load if i == 1 else calm
        found = play(case.machine, TEXT, length, TOKENS, seed_of(session, i), disturbed=disturbed)
        took += found.seconds if i in AFTER else 0.0
    return best_seconds(case, session) / took


def sessions(chosen, load, count):
    return [kept(case, load, i) for case in chosen for i in range(count)]


@loads
def test_a_load_that_has_ended_is_forgotten_on_known_chips(load):
    found = sessions(KNOWN, load, 6)
    assert fmean(found) >= LEAST[load][0] and min(found) >= 0.89


@pytest.mark.full
@loads
def test_a_load_that_has_ended_is_forgotten_on_all_machines(load):
    found = sessions([*UNKNOWN, *KNOWN], load, 24)
    _, mean, share = LEAST[load]
    assert fmean(found) >= mean and sum(one < 0.9 for one in found) <= share * len(found)
