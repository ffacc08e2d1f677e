"""Masked or unmasked drafts: by the seconds of masked steps against the tokens that an early end loses."""

from itertools import pairwise
from random import Random

import pytest

from specdec_cli.engine.draft_length.masking import LAST_WAIT_ROUNDS, TRIAL_ROUNDS, DraftMasking
from specdec_cli.events import Round
from specdec_cli.kinds import FORCED, LOOKUP, MODEL

K, STEP, PASS, RATE = 4, 0.002, 0.025, 0.8


def round_of(drafted, accepted, seconds, drafter=MODEL.name):
    return Round(
        index=1,
        drafter=drafter,
        draft=tuple(range(drafted)),
        accepted=accepted,
        next=1,
        emitted=tuple(range(accepted + 1)),
        draft_seconds=0.2 * seconds,
        verify_seconds=0.8 * seconds,
    )


class Device:
    """`mask_seconds` are added to every masked draft step; an unmasked token is illegal with the odds `illegal`."""

    def __init__(self, mask_seconds, illegal, seed=0, noise=0.1):
        self._mask, self._illegal, self._noise, self._rng = mask_seconds, illegal, noise, Random(seed)
        self.seconds = self.tokens = 0.0

    def play(self, masking, rounds):
        """How many of the rounds were masked."""
        masked = 0
        for _ in range(rounds):
            masked += masking.masked
            step = STEP + (self._mask if masking.masked else 0.0)
            legal = K
            if not masking.masked:
                legal = next((i for i in range(K) if self._rng.random() < self._illegal), K)
            accepted = next((i for i in range(legal) if self._rng.random() > RATE), legal)
            seconds = (K * step + PASS) * self._rng.lognormvariate(0, self._noise)
            self.seconds, self.tokens = self.seconds + seconds, self.tokens + accepted + 1
            masking.observe(round_of(legal, accepted, seconds), legal, K)
        return masked / rounds


@pytest.mark.parametrize(
    ("mask_seconds", "illegal", "masked"),
    [
        (0.004, 0.02, False),  # waiting for each token costs half a pass, and little is illegal
        (0.002, 0.0, False),
        (0.0001, 0.5, True),  # masks are nearly free, and half of what is drafted is illegal
        (0.002, 0.4, True),
        (0.0, 0.3, True),
    ],
)
def test_the_cheaper_way_drafts(mask_seconds, illegal, masked):
    """N = 20 seeds x 300 rounds, 10 % of noise: at least nine tenths of the rounds after the first 60, in the mean."""
    shares = []
    for seed in range(20):
        masking, device = DraftMasking(), Device(mask_seconds, illegal, seed)
        device.play(masking, 60)
        shares.append(device.play(masking, 300))
    share = sum(shares) / len(shares)
    assert (share if masked else 1 - share) > 0.9


@pytest.mark.parametrize(("mask_seconds", "illegal"), [(0.004, 0.02), (0.0001, 0.5), (0.001, 0.1)])
def test_choosing_costs_little_over_the_better_way(mask_seconds, illegal):
    """20 seeds x 400 rounds. Negative control: the other way, fixed, loses more in the first two cases."""
    chosen, fixed = Device(mask_seconds, illegal), {}
    for seed in range(20):
        chosen._rng.seed(seed)
        chosen.play(DraftMasking(), 400)
    for way in (True, False):
        fixed[way] = Device(mask_seconds, illegal)
        fixed[way].play(Fixed(way), 8000)
    pace, paces = chosen.seconds / chosen.tokens, {way: one.seconds / one.tokens for way, one in fixed.items()}
    assert pace < 1.04 * min(paces.values())
    if (mask_seconds, illegal) != (0.001, 0.1):
        assert max(paces.values()) > 1.2 * min(paces.values())


class Fixed:
    def __init__(self, masked):
        self.masked = masked

    def observe(self, round, legal, drafted):
        pass


def test_a_trial_that_loses_tokens_is_short_and_later_ones_are_rare():
    masking, device, ways = DraftMasking(), Device(0.0, 0.9), []
    for _ in range(700):
        ways.append(masking.masked)
        device.play(masking, 1)
    trials = [place for place in range(1, 700) if not ways[place] and ways[place - 1]]
    waits = [later - sooner for sooner, later in pairwise(trials)]
    assert ways[:16] == [True] * 16 and ways.count(False) <= len(trials) * TRIAL_ROUNDS
    assert waits == sorted(waits) and waits[-1] > 200 and max(waits) <= LAST_WAIT_ROUNDS + TRIAL_ROUNDS


def test_a_device_that_changes_changes_the_choice():
    """Masks become dear when the vocabulary's other user wakes: both ways stay under trial."""
    masking = DraftMasking()
    assert Device(0.0001, 0.3).play(masking, 100) > 0.8
    assert Device(0.01, 0.0).play(masking, 600) < 0.7
    assert not masking.masked or masking.gain_seconds() > 0


@pytest.mark.parametrize("drafter", [FORCED.name, LOOKUP.name, "none"])
def test_what_no_network_drafted_teaches_nothing(drafter):
    masking = DraftMasking()
    for _ in range(100):
        masking.observe(round_of(4, 4, 0.02, drafter), 4, 4)
        masking.observe(round_of(0, 0, 0.02), 0, 0)
    assert masking.masked and masking.gain_seconds() is None


def test_a_later_process_begins_with_the_better_way():
    masking = DraftMasking()
    Device(0.01, 0.0).play(masking, 100)
    assert masking.to_dict(1000.0) == {"at": 1000.0, "masked": False}
    assert not DraftMasking.from_dict(masking.to_dict(1000.0), 2000.0).masked


@pytest.mark.parametrize(
    "values",
    [None, {}, {"at": 1.0}, {"at": "x", "masked": False}, {"at": 1.0, "masked": 0}, {"at": 9e9, "masked": False}],
)
def test_nonsense_in_a_file_is_a_beginning_of_its_own(values):
    assert DraftMasking.from_dict(values, 100.0).masked


def test_what_is_too_old_is_not_believed():
    assert DraftMasking.from_dict({"at": 1.0, "masked": False}, 1.0 + 31 * 86400).masked
