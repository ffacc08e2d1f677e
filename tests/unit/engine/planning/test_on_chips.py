"""Adaptive K on simulated chips, calm and disturbed: how near it comes to the best fixed K, and to plain decoding.

`against_best` is seconds of the best K of 0 … 16 with hindsight over seconds of `-k auto`, `against_plain` likewise
with K = 0; both for whole replies, summed over seeds. `cold`: nothing was measured, costs are assumed by the chip.
`warm`: an earlier process wrote its record after four replies. `one_shots`: one process a reply, each from the
record of the one before, and nothing known at first. Plays are seeded: a failure is a change, never chance.
The bounds are what was reached, not what was hoped for: 3 % of the best K is the goal and is missed in places. Here the
draft model is alone; copied text is lookups' (`drafters/test_lookup.py`).
"""

import json
import random
from dataclasses import dataclass, replace
from functools import cache
from math import exp
from statistics import fmean

import pytest

from fakes.machine import CODE, CURVES, HOSTILE, PROSE, Machine, play
from specdec_cli.engine.planning import chips
from specdec_cli.engine.planning.costs import Costs
from specdec_cli.engine.planning.history import History

pytestmark = pytest.mark.slow  # simulations

WIDEST = 14336


# Plain steps of a draft step; the middle one is assumed, the others are half and twice as dear.
DRAFT_STEPS = (0.075, 0.15, 0.3)


@dataclass(frozen=True, eq=False)
class Case:
    """A machine, and the costs that the product would assume of it."""

    machine: Machine
    assumed: Costs


def case(name: str, rows: dict[int, float], draft_step: float) -> Case:
    chip = chips.chip_of(name)
    assumed = Costs(chip.rows(WIDEST), {1: DRAFT_STEPS[1]}, DRAFT_STEPS[1] / 8)
    return Case(Machine(f"{name}, draft {draft_step}", draft_step, rows, spikes=0.0), assumed)


def steeper(rows: dict[int, float], factor: float) -> dict[int, float]:
    """The same curve with further rows at `factor` of their cost."""
    return {n: 1 + (cost - 1) * factor for n, cost in rows.items()}


def cases() -> list[Case]:
    """Every curve with every draft; estimated ones at half and twice their cost of rows too, with the middle draft."""
    found = [case(name, rows, step) for name, rows, _ in CURVES for step in DRAFT_STEPS]
    for name, rows, measured in CURVES:
        if not measured:
            for factor in (0.5, 2.0):
                one = case(name, steeper(rows, factor), DRAFT_STEPS[1])
                found.append(replace(one, machine=replace(one.machine, name=f"{name}, rows × {factor:g}")))
    return found


# What all passes of a round take longer, by the round's number, the reply's clock and luck.
def calm(index: int, seconds: float, luck: random.Random) -> float:
    return 1.0


def outliers(index: int, seconds: float, luck: random.Random) -> float:
    """One round in ten takes three times as long."""
    return 3.0 if luck.random() < 0.1 else 1.0


def cold_start(index: int, seconds: float, luck: random.Random) -> float:
    """The first three rounds of a reply take twice as long."""
    return 2.0 if index < 3 else 1.0


def busy(index: int, seconds: float, luck: random.Random) -> float:
    """Two seconds at half speed."""
    return 2.0 if 0.5 <= seconds < 2.5 else 1.0


def restless(index: int, seconds: float, luck: random.Random) -> float:
    """Other programs come and go: log-normal noise of 20 % on every round."""
    return exp(luck.gauss(0, 0.2))


KS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16)
SEEDS = {32: range(16), 128: range(8), 512: range(4)}
CASES = cases()
QUICK = CASES[9:18:2]  # M3 and later, every draft
TYPICAL = (CODE, PROSE)
# On a few chips, and on all of them. With costs of an earlier process, and three rounds that take twice as long, M2's
# lose a quarter of 128 tokens to plain decoding.
WEAKEST_PLAIN = {calm: 0.96, outliers: 0.955, busy: 0.96, cold_start: 0.93, restless: 0.94}
WEAKEST_OF_ALL = {calm: 0.935, outliers: 0.83, busy: 0.89, cold_start: 0.755, restless: 0.9}
MEAN_BEST = {calm: 0.97, outliers: 0.95, busy: 0.97, cold_start: 0.945, restless: 0.93}

# Every disturbance at 128 tokens, and calm at 512; the others at 512 take minutes.
EACH = [
    pytest.param(disturbed, tokens, marks=pytest.mark.full if tokens > 128 and disturbed is not calm else ())
    for disturbed in WEAKEST_PLAIN
    for tokens in (128, 512)
]
disturbances = pytest.mark.parametrize("disturbed", WEAKEST_PLAIN, ids=lambda one: one.__name__)


@cache
def fixed_seconds(case, text, tokens, disturbed):
    """Seconds of every K, over all seeds."""
    seeds = SEEDS[tokens]
    return {k: sum(play(case.machine, text, k, tokens, s, disturbed=disturbed).seconds for s in seeds) for k in KS}


@cache
def written(case):
    """What a process leaves behind after four replies."""
    length = History(case.assumed)
    for i, text in enumerate((PROSE, CODE, HOSTILE, CODE)):
        length.begin(300, 64)
        play(case.machine, text, length, 300, 900 + i)
    return json.dumps(length.to_dict(1e9))


@cache
def seconds(case, text, tokens, disturbed, warm):
    """Seconds of `-k auto`, over all seeds."""
    took = 0.0
    for seed in SEEDS[tokens]:
        length = History(case.assumed)
        if warm:
            length = History(case.assumed, kept=json.loads(written(case)))
        length.begin(tokens, 64)
        took += play(case.machine, text, length, tokens, seed, disturbed=disturbed).seconds
    return took


def against_best(case, text, tokens, disturbed=calm, warm=False):
    best = min(fixed_seconds(case, text, tokens, disturbed).values())
    return best / seconds(case, text, tokens, disturbed, warm)


def against_plain(case, text, tokens, disturbed=calm, warm=False):
    return fixed_seconds(case, text, tokens, disturbed)[0] / seconds(case, text, tokens, disturbed, warm)


def mean_against_best(chosen, tokens, disturbed=calm, warm=False):
    return fmean(against_best(case, text, tokens, disturbed, warm) for case in chosen for text in TYPICAL)


def one_shots(case, text, tokens=32, processes=8):
    """Seconds of the best K over those of `-k auto`, a process a reply, each from the record of the one before."""
    history, took, fixed = History(case.assumed), 0.0, dict.fromkeys(KS, 0.0)
    for seed in range(processes):
        history.begin(tokens, 64)
        took += play(case.machine, text, history, tokens, seed).seconds
        for k in KS:
            fixed[k] += play(case.machine, text, k, tokens, seed).seconds
        history = History(case.assumed, kept=json.loads(json.dumps(history.to_dict(1e9))))
    return min(fixed.values()) / took


@disturbances
def test_hostile_text_stays_near_plain_decoding_on_a_few_chips(disturbed):
    assert min(against_plain(case, HOSTILE, 128, disturbed) for case in QUICK) >= WEAKEST_PLAIN[disturbed]


@pytest.mark.parametrize("warm", [False, True])
def test_typical_text_comes_near_the_best_k_on_a_few_chips(warm):
    assert mean_against_best(QUICK, 128, warm=warm) >= 0.975


@pytest.mark.parametrize(
    ("chosen", "least"), [(QUICK, 0.9), pytest.param(CASES, 0.93, marks=pytest.mark.full)], ids=["a few chips", "all"]
)
def test_a_first_reply_of_32_tokens_drafts_where_that_pays_and_loses_little_where_it_does_not(chosen, least):
    """Nothing was measured on the machine: what a one-shot `run` meets first. M1 and M2, which do not try, are in all
    of them alone."""
    code = [against_best(case, CODE, 32) for case in chosen]
    assert fmean(code) >= 0.93 and min(code) >= 0.65
    hostile = [against_plain(case, HOSTILE, 32) for case in chosen]
    assert fmean(hostile) >= least and min(hostile) >= 0.86


def test_a_process_a_reply_learns_from_the_one_before():
    assert fmean(one_shots(case, CODE) for case in QUICK) >= 0.97
    assert fmean(one_shots(case, HOSTILE) for case in QUICK) >= 0.955


@pytest.mark.full
@pytest.mark.parametrize(("disturbed", "tokens"), EACH)
def test_no_text_is_far_under_plain_decoding_and_typical_text_comes_near_the_best_k(disturbed, tokens):
    """On any chip, and over all of them; cold and warm."""
    for warm in (False, True):
        worst = min(
            (against_plain(case, text, tokens, disturbed, warm), case.machine.name, text.name)
            for case in CASES
            for text in (CODE, PROSE, HOSTILE)
        )
        assert worst[0] >= WEAKEST_OF_ALL[disturbed], worst
        least = MEAN_BEST[disturbed] - (0.01 if tokens == 128 and not warm else 0.0)
        assert mean_against_best(CASES, tokens, disturbed, warm) >= least
