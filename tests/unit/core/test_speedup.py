"""Rates, gains and their intervals: by definition, by hand, and on machines that are busy by the second."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean, median

import pytest

from specdec_cli.core.events import Finish, Round
from specdec_cli.core.gain import (
    FEWEST_ROUNDS,
    Gain,
    break_even_acceptance,
    break_even_share,
    expected_tokens,
    interpolate,
    speedup,
    tokens_per_round,
    unknown_words,
)
from specdec_cli.core.speedup import BELIEVED_SECONDS, EARLIER, CostMemo, Meter, t_interval, t_quantile
from specdec_cli.core.stats import ChatStats, Stats, ratio


def of_draft(draft, accepted, emitted=None):
    emitted = accepted + 1 if emitted is None else emitted
    return Round(0, "model", tuple(range(draft)), accepted, 9, tuple(range(emitted)), 0.1, 0.2)


@pytest.fixture
def stats():
    """The first token, then 4 of 4, 2 of 4, 0 of 4, and 1 of 1 at the end of the budget."""
    stats = Stats()
    for draft, accepted in ((0, 0), (4, 4), (4, 2), (4, 0), (1, 1)):
        stats.fold(of_draft(draft, accepted))
    return stats


def test_rates_follow_their_definitions(stats):
    assert (stats.draft_n, stats.draft_n_accepted, stats.rejected_n) == (13, 7, 2)
    assert stats.draft_acceptance_rate == 7 / 13
    assert stats.judged_acceptance_rate == 7 / 9
    assert stats.emitted_tokens == 12
    assert stats.mean_acceptance_length == 12 / 5


def test_positions_count_only_rounds_that_drafted_them(stats):
    assert stats.acceptance_per_position == [3 / 4, 2 / 3, 1 / 3, 1 / 3]
    assert stats.accepted_histogram == [1, 1, 1, 0, 1]


def test_a_pace_is_of_the_tokens_after_the_first_round_however_many_that_emitted():
    stats, chat = Stats(decode_seconds=2.0), ChatStats()
    for draft, accepted in ((3, 3), (4, 4), (0, 0)):
        stats.fold(of_draft(draft, accepted))
    assert (stats.timed_tokens, stats.tokens_per_second) == (6, 3.0)
    chat.fold(Finish("length", "", (), "", stats.to_dict()))
    chat.fold(Finish("length", "", (), "", stats.to_dict()))
    assert (chat.timed_tokens, chat.tokens_per_second) == (12, 3.0)


def test_a_plain_step_is_what_the_gain_says_of_the_time_a_token_took(stats):
    stats.decode_seconds, stats.measuring_seconds, stats.gain = 2.0, 0.2, Gain(1.5, 1.2, 1.9, 0.35, 0.3, 0.4)
    values = stats.to_dict()
    assert values["plain_step_seconds"] == pytest.approx(1.5 * 2.2 / 11)
    assert Gain.of_stats(values) == stats.gain


def test_zero_denominators_give_none():
    values = Stats().to_dict()
    for name in ("draft_acceptance_rate", "judged_acceptance_rate", "mean_acceptance_length", "tokens_per_second"):
        assert values[name] is None
    assert all(values[f"estimated_speedup{end}"] is None for end in ("", "_low", "_high"))
    assert values["plain_step_seconds"] is None and values["break_even_acceptance_rate"] is None
    assert Gain.of_stats(values) is None
    assert ratio(1, 0) is None


# Gain: what is said of an estimate and its interval.


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Gain(1.4, 1.12, 1.71), "1.40× faster (1.12–1.71)"),
        (Gain(0.83, 0.79, 0.88), "slower, 0.83× (0.79–0.88)"),
        (Gain(1.0, 0.94, 1.07), "no difference (0.94–1.07)"),
        (Gain(1.02, 0.94, 1.11), "cannot tell yet (0.94–1.11)"),
        (Gain(1.1, 0.6, 1.8), "cannot tell yet (0.60–1.80)"),
        (Gain(1.06, 1.0, 1.1), "no difference (1.00–1.10)"),
    ],
)
def test_a_gain_is_said_with_its_interval(gain, said):
    assert gain.sentence == said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ((0.45, 0.35, 0.6), "pays from ≈ 45 % (35–60)"),
        ((0.45, 0.25, 0.66), ""),
        ((0.9, 0.8, 1.02), ""),
        ((1.3, 1.2, 1.4), ""),
        ((0.45, None, None), ""),
        ((), ""),
    ],
)
def test_a_break_even_is_said_with_its_doubt_or_not_at_all(share, said):
    """The bug: replies to one prompt said "pays from" 33 to 65 %, and one "cannot pay here"."""
    assert Gain(1.4, 1.1, 1.7, *share).pays_from == said


@pytest.mark.parametrize(("rounds", "said"), [(15, "not enough rounds to compare"), (16, "cannot tell yet")])
def test_a_reply_without_a_figure_says_whether_it_was_too_short(rounds, said):
    assert unknown_words(rounds) == said


# S(K) by hand: tokens of a round, its cost, and the acceptance that pays for it.


@pytest.mark.parametrize(("k", "acceptance"), [(1, 0.3), (4, 0.62), (8, 0.9)])
def test_break_even_acceptance_inverts_the_papers_expectation(k, acceptance):
    tokens = (1 - acceptance ** (k + 1)) / (1 - acceptance)
    assert break_even_acceptance(tokens, k) == pytest.approx(acceptance)


def test_tokens_of_a_round_are_the_sum_of_the_products_of_the_rates():
    assert expected_tokens([0.8, 0.5, 0.0, 0.9]) == pytest.approx([1.0, 1.8, 2.2, 2.2, 2.2])
    assert expected_tokens([]) == [1.0]


def test_a_table_is_linear_between_its_entries_and_goes_on_with_its_mean_slope():
    table = {1: 1.0, 3: 1.4, 5: 2.2}
    assert [interpolate(table, n) for n in (1, 2, 3, 4, 5)] == pytest.approx([1.0, 1.2, 1.4, 1.8, 2.2])
    assert interpolate(table, 7) == pytest.approx(2.2 + 2 * 0.3)


@pytest.mark.parametrize(("k", "acceptance"), [(1, 0.3), (4, 0.8), (8, 1.0)])
def test_the_break_even_share_is_that_of_drafted_tokens_at_the_judged_break_even(k, acceptance):
    tokens = tokens_per_round(acceptance, k)
    assert break_even_share(tokens, k) == pytest.approx((tokens - 1) / k)
    assert speedup(1 + break_even_share(2.4, k) * k, 2.4) == pytest.approx(1)


# Simulated machines that are busy by the second, and replies on them with their paired truth: a plain pass for every
# emitted token, taken at the very moment of the round that emitted it.


TOKENS = 128
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


def ignorant_gain(steps: list[float], rounds: list[float], tokens: int) -> Gain:
    """The control: steps of one moment against all rounds, and no doubt but by how both scatter."""
    ratio = fmean(steps) * tokens / sum(rounds)
    _, half = t_interval([[log(seconds) for seconds in group] for group in (steps, rounds)])
    return Gain(ratio, ratio / exp(2 * half), ratio * exp(2 * half))


def played(machine: Machine, case: Case, memo: CostMemo) -> tuple[Meter, Gain, float, float]:
    """(the meter, the control's gain, the paired truth, the share that pays by it)."""
    meter, plain, tokens = Meter(memo), 0.0, 0
    rounds: list[float] = []
    while tokens < TOKENS:
        accepted = 0
        while accepted < case.k and machine.luck.random() < case.acceptance:
            accepted += 1
        plain += sum(machine.passed(case.plain_seconds, counted=False) for _ in range(accepted + 1))
        rounds.append(machine.passed(case.steps * case.plain_seconds, one_row=False))
        meter.fold(a_round(case.k, accepted, rounds[-1]))
        tokens += accepted + 1
        if len(rounds) == 12:
            machine.passed(case.plain_seconds)
            meter.add_plain_steps([machine.passed(case.plain_seconds) for _ in range(AMID_STEPS)])
    machine.passed(case.plain_seconds)
    last = [machine.passed(case.plain_seconds) for _ in range(LAST_STEPS)]
    meter.add_plain_steps(last)
    pays_from = max(tokens * sum(rounds) / plain / len(rounds) - 1, 0.0) / case.k
    return meter, ignorant_gain(last, rounds, tokens), plain / sum(rounds), pays_from


def simulated(replies: int) -> Iterator[tuple[Gain | None, Gain, float, float]]:
    """Replies on machines of every kind, each after none to five earlier ones: the gain, and the rest as `played`."""
    for seed in range(replies):
        luck = random.Random(seed)
        machine = Machine(luck, NOISES[seed % len(NOISES)])
        case = Case(
            luck.choice((2, 4, 6)), luck.uniform(1.1, 3.0), luck.choice((0.01, 0.02, 0.04)), luck.uniform(0.4, 0.9)
        )
        memo = CostMemo()
        for _ in range(luck.randrange(6)):
            memo = played(machine, case, memo)[0].learn()
            machine.now = luck.uniform(0, 20)
        meter, *rest = played(machine, case, memo)
        yield meter.gain(), *rest


# The interval holds the truth.


KNOWN = CostMemo({("model", 4): (log(2.0),) * EARLIER})
# Two-sided, from printed tables of Student's t (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
TABLE = {
    0.90: {1: 6.314, 2: 2.920, 3: 2.353, 5: 2.015, 10: 1.812, 30: 1.697, 100: 1.660},
    0.95: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 20: 2.086, 60: 2.000, 100: 1.984},
    0.99: {1: 63.657, 2: 9.925, 3: 5.841, 5: 4.032, 10: 3.169, 30: 2.750, 100: 2.626},
}


@pytest.mark.slow
def test_the_interval_holds_the_truth_in_nine_of_ten_replies_and_one_that_ignores_disturbance_does_not():
    """N = 200, bound 90 %; at a true coverage of 95 % fewer have odds of 1 in 400. The seeds are fixed.

    Of 600 such replies, the meter before this one, of a normal and inverse-gamma prior, showed 594 figures, 95.8 % of
    them right, at a median half-width of 15.6 %, and told nothing in 27 %; this one 587, 96.8 %, 16.1 %, 33 %.
    """
    found = list(simulated(200))
    shown = [(gain, truth, share) for gain, _, truth, share in found if gain is not None]
    width = median((gain.high - gain.low) / 2 / gain.speedup for gain, *_ in shown)
    untold = fmean(gain is None or gain.verdict == "cannot tell yet" for gain, *_ in found)
    right = fmean(gain.low <= truth <= gain.high for gain, truth, _ in shown)
    control = fmean(ignorant.low <= truth <= ignorant.high for _, ignorant, truth, _ in found)
    print(f"{right:.1%} of {len(shown)} right, median half-width {width:.1%}, not told {untold:.1%}, {control:.1%}")
    assert right >= 0.90 and width < 0.17 and untold < 0.36
    assert fmean(gain.break_even_low <= share <= gain.break_even_high for gain, _, share in shown) >= 0.90
    assert control < 0.90


def reply_of(seconds, steps=(), memo=None, k=4, accepted=2):
    """A meter that has seen drafted rounds of so many seconds, and then plain steps."""
    meter = Meter(memo)
    for one in seconds:
        meter.fold(a_round(k, accepted, one))
    meter.add_plain_steps(steps)
    return meter


def test_nothing_is_claimed_of_few_rounds_of_few_drafts_or_without_a_plain_step():
    assert reply_of([0.03] * (FEWEST_ROUNDS - 1), memo=KNOWN).gain() is None
    assert reply_of([0.03] * FEWEST_ROUNDS, memo=KNOWN).gain() is not None
    assert reply_of([0.03] * 400).gain() is None
    rare = Meter(KNOWN)
    for index in range(400):
        rare.fold(a_round(4 if index % 25 == 0 else 0, 0, 0.02))
    assert rare.gain() is None


def test_of_plain_rounds_in_a_row_the_first_and_the_last_are_no_measure():
    meter = Meter()
    for seconds in (9.0, 1.0, 1.0, 0.1):
        meter.fold(a_round(0, 0, seconds))
    for _ in range(16):
        meter.fold(a_round(4, 4, 2.0))
    assert meter.gain().speedup == pytest.approx((4 + 16 * 5) / (4 + 16 * 2.0), rel=1e-3)


def test_a_machine_too_busy_to_tell_gets_no_figure():
    luck = random.Random(5)
    meter = reply_of([0.05 * exp(luck.gauss(0, 1.2)) for _ in range(40)], [0.02])
    assert meter.shows and meter.gain() is None


def test_rounds_of_several_k_are_compared_each_at_its_own_cost():
    """K follows the text: the plain steps happen beside dear rounds, and most rounds are cheap."""
    meter = Meter()
    for index in range(60):
        meter.fold(a_round(8, 4, 4.0) if index % 6 == 5 else a_round(2, 1, 1.5))
        if index in (23, 47):
            meter.add_plain_steps([1.0])
    assert meter.gain().speedup == pytest.approx((10 * 5 + 50 * 2) / (10 * 4.0 + 50 * 1.5), rel=0.03)


def test_what_earlier_replies_found_gives_a_figure_before_anything_is_measured():
    gain = reply_of([0.04] * FEWEST_ROUNDS, memo=KNOWN, accepted=3).gain()
    assert gain.speedup == pytest.approx(2.0) and gain.low > 1.6


def test_a_disturbed_step_moves_a_known_cost_little_and_later_figures_come_back():
    """A step of ten beside one that was undisturbed: the one in the middle counts."""
    disturbed = reply_of([2.0] * 30, [1.0], KNOWN)
    disturbed.add_plain_steps([10.0])
    memo = disturbed.learn()
    assert memo.costs["model", 4] == pytest.approx((log(2.0),) * EARLIER)
    assert reply_of([2.0] * 30, [1.0], memo).gain() is not None


def test_costs_survive_the_trip_through_the_file_and_not_for_ever():
    memo = CostMemo({("model", 4): (0.5, 0.6), ("ngram", 8): (0.9,)})
    saved = json.loads(json.dumps(memo.to_dict(1000.0)))
    assert CostMemo.from_dict(saved, 2000.0) == memo
    assert CostMemo.from_dict(saved, 1001.0 + BELIEVED_SECONDS) == CostMemo.from_dict(saved, 999.0) == CostMemo()


@pytest.mark.parametrize("confidence", TABLE)
def test_quantiles_are_the_tabulated_ones(confidence):
    for freedom, value in TABLE[confidence].items():
        assert round(t_quantile(freedom, confidence), 3) == pytest.approx(value, abs=0.00051)


def test_an_interval_by_hand():
    """1, 2, 3, 6: mean 3, s = 2.1602, t(3) = 3.1824, so 3 ± 3.4374. Of groups, s² = (2 + 6) / 3 is pooled."""
    assert t_interval([[1, 2, 3, 6]]) == (3, pytest.approx(3.43741, abs=1e-4))
    half = 3.18245 / 2 * (8 / 3 * (1 / 2 + 1 / 3)) ** 0.5
    assert t_interval([[1, 3], [2, 2, 5]]) == (2.5, pytest.approx(half, abs=1e-4))
