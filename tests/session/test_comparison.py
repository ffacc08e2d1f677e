"""The interval on what drafting gained holds the truth, on machines that are busy by the second.

The truth of a simulated reply is paired: a plain pass for every emitted token, taken at the very moment of the round
that emitted it. Of 600 such replies the interval held it in 92.5 %. The seeds are fixed, so nothing flakes.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import fmean, median, stdev

import pytest

from specdec_cli.events import Round
from specdec_cli.gain import FEWEST_ROUNDS, Gain
from specdec_cli.session.comparison import Comparison
from specdec_cli.session.round_costs import Doubted, KnownCosts

REPLIES, TOKENS = 240, 128
# What the product may afford amid a reply of this length, and what it measures at its end.
AMID_STEPS, LAST_STEPS = 1, 4


def quiet(machine: "Machine", one_row: bool) -> float:
    """4 % of scatter; one pass in a hundred takes three times as long."""
    return exp(machine.luck.gauss(0, 0.04)) * (3.0 if machine.luck.random() < 0.01 else 1.0)


def switching(machine: "Machine", one_row: bool) -> float:
    """Half speed for a second or so at a time."""
    return (2.0 if machine.busy else 1.0) * exp(machine.luck.gauss(0, 0.05))


def loaded(machine: "Machine", one_row: bool) -> float:
    """As `switching`, and while busy every pass scatters by 35 %."""
    return exp(log(2.0) + machine.luck.gauss(0, 0.35)) if machine.busy else exp(machine.luck.gauss(0, 0.05))


def drifting(machine: "Machine", one_row: bool) -> float:
    """Up and down by 30 % over some seconds."""
    return 1 + 0.3 * abs((machine.now / 4) % 2 - 1) + machine.luck.gauss(0, 0.05)


def restless(machine: "Machine", one_row: bool) -> float:
    """Other programs come and go: 20 % of scatter, three in a hundred three times as long."""
    return exp(machine.luck.gauss(0, 0.2)) * (3.0 if machine.luck.random() < 0.03 else 1.0)


def uneven(machine: "Machine", one_row: bool) -> float:
    """As `switching`, but passes of several rows lose less: by a fifth, a round costs fewer plain steps while busy."""
    return ((1.8 if one_row else 1.4) if machine.busy else 1.0) * exp(machine.luck.gauss(0, 0.05))


NOISES = (quiet, switching, loaded, drifting, restless, uneven)


@dataclass
class Machine:
    """Its clock, and what a pass takes at each moment; `switches` are the seconds when other work begins or ends."""

    luck: random.Random
    noise: object
    now: float = 0.0
    switches: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        at = 0.0
        while at < 60:
            at += self.luck.expovariate(1.0)
            self.switches.append(at)

    @property
    def busy(self) -> bool:
        return sum(at < self.now for at in self.switches) % 2 == 1

    def passed(self, seconds: float, counted: bool = True, one_row: bool = True) -> float:
        """What a pass of `seconds` takes now; the clock goes on if it is `counted`."""
        took = seconds * self.noise(self, one_row)
        self.now += took if counted else 0.0
        return took


@dataclass
class Case:
    """A pair on a machine: a round of K costs `steps` plain steps."""

    k: int
    steps: float
    plain_seconds: float
    acceptance: float


def a_round(k: int, accepted: int, seconds: float) -> Round:
    return Round(1, "model" if k else "none", tuple(range(k)), accepted, 0, tuple(range(accepted + 1)), 0.0, seconds)


def played(machine: Machine, case: Case, known: KnownCosts) -> tuple[Comparison, float, float]:
    """(the comparison, the paired truth, the figure of before: four plain steps at the end over the whole reply)."""
    comparison = Comparison(known)
    taken = plain = 0.0
    tokens = rounds = 0
    while tokens < TOKENS:
        accepted = 0
        while accepted < case.k and machine.luck.random() < case.acceptance:
            accepted += 1
        plain += sum(machine.passed(case.plain_seconds, counted=False) for _ in range(accepted + 1))
        seconds = machine.passed(case.steps * case.plain_seconds, one_row=False)
        comparison.fold(a_round(case.k, accepted, seconds))
        taken, tokens, rounds = taken + seconds, tokens + accepted + 1, rounds + 1
        if rounds == 12:
            machine.passed(case.plain_seconds)
            comparison.measured([machine.passed(case.plain_seconds) for _ in range(AMID_STEPS)])
    machine.passed(case.plain_seconds)
    last = [machine.passed(case.plain_seconds) for _ in range(LAST_STEPS)]
    comparison.measured(last)
    return comparison, plain / taken, fmean(last) * tokens / taken


def simulated(replies: int = REPLIES) -> Iterator[tuple[Comparison, float, float, int]]:
    """Replies on machines of every kind, after none to five earlier ones; each with (…, the number of those)."""
    for seed in range(replies):
        luck = random.Random(seed)
        machine = Machine(luck, NOISES[seed % len(NOISES)])
        case = Case(
            luck.choice((2, 4, 6)), luck.uniform(1.1, 3.0), luck.choice((0.01, 0.02, 0.04)), luck.uniform(0.4, 0.9)
        )
        known, earlier = KnownCosts(), luck.randrange(6)
        for _ in range(earlier):
            known = played(machine, case, known)[0].learned()
            machine.now = luck.uniform(0, 20)
        yield *played(machine, case, known), earlier


@pytest.fixture(scope="module")
def replies() -> list[tuple[Gain, float, float, int]]:
    """Those with a figure: the others had machines too busy to tell."""
    found = [(comparison.gain(), *more) for comparison, *more in simulated()]
    shown = [row for row in found if row[0] is not None]
    assert len(shown) >= 0.9 * len(found)
    return shown


def test_the_interval_holds_the_paired_truth_in_90_to_97_of_100_replies(replies):
    held = fmean(gain.low <= truth <= gain.high for gain, truth, *_ in replies)
    assert 0.90 <= held <= 0.97


def test_the_interval_is_at_most_20_percent_wide_to_each_side_at_the_median(replies):
    assert median((gain.high - gain.low) / 2 / gain.speedup for gain, *_ in replies) <= 0.20


def test_the_estimate_is_near_the_truth_and_not_to_one_side(replies):
    off = [log(gain.speedup / truth) for gain, truth, *_ in replies]
    assert abs(fmean(off)) < 0.03
    assert stdev(off) < 0.15


def test_four_steps_at_the_end_over_the_whole_reply_are_half_as_far_off_again(replies):
    """Negative control: the figure of before. Eight identical runs gave 0.49 to 1.39."""
    now = stdev(log(gain.speedup / truth) for gain, truth, *_ in replies)
    before = stdev(log(old / truth) for _, truth, old, _ in replies)
    assert before > 1.5 * now


def test_an_interval_that_takes_the_reply_s_rounds_and_steps_for_independent_misses_the_truth():
    """Negative control: the usual interval of two means, without pairs in time, on machines that switch their speed."""
    held = []
    for seed in range(120):
        luck = random.Random(seed)
        machine, case = Machine(luck, switching), Case(4, 1.8, 0.02, 0.7)
        comparison, truth, _ = played(machine, case, KnownCosts())
        steps = [step for cluster in comparison._clusters for step in cluster.seconds]
        rounds = comparison._seconds
        estimate = fmean(steps) * comparison._tokens / sum(rounds)
        parts = [stdev(values) / fmean(values) / sqrt(len(values)) for values in (steps, rounds)]
        half = 2.1 * sqrt(sum(part**2 for part in parts))
        held.append(abs(log(estimate / truth)) <= half)
    assert fmean(held) < 0.80


def test_nothing_is_claimed_of_few_rounds_of_few_drafts_or_without_a_plain_step():
    few = Comparison(KnownCosts({("model", 4): Doubted(0.5, 0.01)}))
    for _ in range(FEWEST_ROUNDS - 1):
        few.fold(a_round(4, 2, 0.03))
    assert few.gain() is None
    few.fold(a_round(4, 2, 0.03))
    assert few.gain() is not None
    unmeasured, rare = Comparison(), Comparison(KnownCosts({("model", 4): Doubted(0.5, 0.01)}))
    for index in range(400):
        unmeasured.fold(a_round(4, 2, 0.03))
        rare.fold(a_round(4 if index % 25 == 0 else 0, 0, 0.02))
    assert unmeasured.gain() is None and rare.gain() is None


def test_of_plain_rounds_in_a_row_the_first_and_the_last_are_no_measure():
    comparison = Comparison()
    for seconds in (9.0, 1.0, 1.0, 0.1):
        comparison.fold(a_round(0, 0, seconds))
    for _ in range(16):
        comparison.fold(a_round(4, 4, 2.0))
    assert comparison._cost().log == pytest.approx(log(2.0), rel=1e-3)
    assert comparison.gain().speedup == pytest.approx((4 + 16 * 5) / (4 + 16 * 2.0), rel=1e-3)


def test_a_machine_too_busy_to_tell_gets_no_figure():
    luck, comparison = random.Random(5), Comparison()
    for _ in range(40):
        comparison.fold(a_round(4, 2, 0.05 * exp(luck.gauss(0, 1.2))))
    comparison.measured([0.02])
    assert comparison.shows and comparison.gain() is None


def test_the_last_shorter_rounds_do_not_move_the_figure():
    """The plain steps at the end stood beside rounds of K 3, 2 and 1: 1.5 times as fast, where 1.08 was true."""
    comparison = Comparison()
    for _ in range(30):
        comparison.fold(a_round(4, 4, 2.4))
    for k in (3, 2, 1):
        comparison.fold(a_round(k, k, 0.5 + 0.4 * k))
    comparison.measured([1.0] * 4)
    assert comparison.gain().speedup == pytest.approx((30 * 5 + 9) / (30 * 2.4 + 3.9), rel=0.01)


def test_the_break_even_is_the_share_of_drafted_tokens_that_pays_for_a_round():
    comparison = Comparison()
    for _ in range(20):
        comparison.fold(a_round(4, 2, 2.2))
    comparison.measured([1.0, 1.0])
    assert comparison.gain().break_even == pytest.approx((2.2 - 1) / 4, rel=1e-3)


def test_the_interval_of_the_break_even_holds_the_reply_s_own_in_nine_of_ten():
    """One pair and one text gave 33 to 65 % without it."""
    held = []
    for comparison, truth, *_ in simulated(120):
        if gain := comparison.gain():
            rounds = len(comparison._kinds)
            share = (comparison._tokens / truth / rounds - 1) / fmean(k for _, k in comparison._kinds)
            held.append(gain.break_even_low <= max(share, 0.0) <= gain.break_even_high)
            assert gain.break_even_low <= gain.break_even <= gain.break_even_high
    assert 0.88 <= fmean(held) <= 0.98


def test_rounds_of_several_k_are_compared_each_at_its_own_cost():
    """K follows the text: the plain steps happen beside dear rounds, and most rounds are cheap."""
    comparison = Comparison()
    for index in range(60):
        comparison.fold(a_round(8, 4, 4.0) if index % 6 == 5 else a_round(2, 1, 1.5))
        if index in (23, 47):
            comparison.measured([1.0])
    tokens, steps = 10 * 5 + 50 * 2, 10 * 4.0 + 50 * 1.5
    assert comparison.gain().speedup == pytest.approx(tokens / steps, rel=0.03)


def test_what_earlier_replies_found_gives_a_figure_before_anything_is_measured():
    comparison = Comparison(KnownCosts({("model", 4): Doubted(log(2.0), 0.003)}))
    for _ in range(FEWEST_ROUNDS):
        comparison.fold(a_round(4, 3, 0.04))
    gain = comparison.gain()
    assert gain.speedup == pytest.approx(2.0) and gain.low > 1.6
