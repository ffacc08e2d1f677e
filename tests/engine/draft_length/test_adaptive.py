"""Adaptive K on simulated machines: never much slower than plain decoding, near the best K chosen with hindsight.

Ratios are seconds of the other over seconds of `Adaptive`, start-up, exploration and the draft's reading of a 64-token
prompt included, summed over SEEDS. Every play is seeded, so a failure is a change and never chance.
"""

import json
from functools import cache
from itertools import groupby

import pytest

from fakes.machine import BY_NAME, CODE, COPY, DEEPEST, HOSTILE, MACHINES, PROSE, SWITCHING, TEXTS, play
from specdec_cli.engine.draft_length import acceptance
from specdec_cli.engine.draft_length.adaptive import Adaptive, Fixed
from specdec_cli.engine.draft_length.constants import FIRST_WAIT
from specdec_cli.kinds import UNTRIED
from specdec_cli.meter import BELIEVED_SECONDS

SEEDS = range(4)
MIX = (CODE, HOSTILE, COPY, PROSE)
# Drafting gains 8 to 10 % there, which a few judged tokens cannot tell from a loss, and each further look costs two
# plain steps and more: what is lost of that gain.
# On copied text every K up to 16 is as good as the next, and some of those beyond 8 are tried.
MARGINAL = {
    ("M1 Pro", "copy-heavy"): 0.96,
    ("M4 Pro (mlx 3852)", "copy-heavy"): 0.95,
    ("CPU, demo pair", "prose"): 0.93,
    ("M2 Ultra", "code"): 0.95,
}
# Where drafting never pays one K (0) is as good as any, and on the M2 even hindsight gains no more than 1.09.
NO_HEADROOM = {"M1 Pro": 0.98, "M2 Ultra": 1.03}

# One on which drafting never pays, one on which it does; the others take seconds each.
QUICK = ("M1 Pro", "M4 Pro (mlx 3852)")
EACH = [machine if machine.name in QUICK else pytest.param(machine, marks=pytest.mark.full) for machine in MACHINES]
machines = pytest.mark.parametrize("machine", EACH, ids=lambda machine: machine.name)


def adaptive(machine, text, tokens, seed, prompt=64, length=None):
    length = length or Adaptive()
    length.begin(tokens, prompt)
    return play(machine, text, length, tokens, seed, prompt)


@cache
def fixed_seconds(name, text, k, tokens, seed, prompt=64):
    return play(BY_NAME[name], text, Fixed(k), tokens, seed, prompt).seconds


def against_plain(machine, text, tokens, prompt=64):
    plain = sum(fixed_seconds(machine.name, text, 0, tokens, seed) for seed in SEEDS)
    return plain / sum(adaptive(machine, text, tokens, seed, prompt).seconds for seed in SEEDS)


def against_best_fixed(machine, text, tokens=1000):
    best = min(sum(fixed_seconds(machine.name, text, k, tokens, seed) for seed in SEEDS) for k in range(DEEPEST + 1))
    return best / sum(adaptive(machine, text, tokens, seed).seconds for seed in SEEDS)


def mix_against_best_fixed(machine, make=Adaptive, tokens=500):
    """Four replies, one kind of text each, one controller; the other side has one K for all four."""
    plays = [(text, 10 * seed + i) for seed in SEEDS for i, text in enumerate(MIX)]
    best = min(
        sum(fixed_seconds(machine.name, text, k, tokens, seed) for text, seed in plays) for k in range(DEEPEST + 1)
    )
    took = 0.0
    for seed in SEEDS:
        length = make()
        for i, text in enumerate(MIX):
            took += adaptive(machine, text, tokens, 10 * seed + i, length=length).seconds
    return best / took


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for text in TEXTS if text is not SWITCHING], ids=lambda text: text.name)
@machines
def test_near_the_best_fixed_k_on_every_machine_and_text(machine, text):
    assert against_best_fixed(machine, text) >= MARGINAL.get((machine.name, text.name), 0.97)


@machines
def test_hostile_text_costs_under_three_percent_in_256_tokens(machine):
    assert against_plain(machine, HOSTILE, 256) >= 0.97


@pytest.mark.full
@machines
def test_four_texts_beat_any_single_k(machine):
    assert mix_against_best_fixed(machine) >= NO_HEADROOM.get(machine.name, 1.03)


@pytest.mark.parametrize("tokens", [16, 64])
@machines
def test_short_answers_to_a_long_prompt_do_not_pay_for_reading_it(machine, tokens):
    for text in (CODE, HOSTILE):
        assert against_plain(machine, text, tokens, prompt=4096) >= 1 / 1.03


def test_short_answers_one_after_another_are_looked_at_in_time():
    """They were never tried, however many came: each alone was too short to look."""
    machine, length = BY_NAME["M4 Pro (mlx 3852)"], Adaptive()
    ks = [adaptive(machine, CODE, 48, seed, length=length).ks for seed in range(6)]
    assert not any(ks[0]) and any(ks[2]) and sum(ks[5]) > len(ks[5])


def test_a_measured_controller_does_not_read_a_long_prompt_for_a_short_answer_either():
    machine, length = BY_NAME["M4 Pro (mlx 3852)"], Adaptive()
    adaptive(machine, CODE, 500, 1, length=length)
    reply = adaptive(machine, CODE, 64, 2, prompt=4096, length=length)
    assert set(reply.ks) == {0} and length.reason.startswith("short answer: reading 4")


def test_a_second_reply_starts_where_the_first_ended():
    machine, length = BY_NAME["M4 Pro (mlx 3852)"], Adaptive()
    first = adaptive(machine, CODE, 500, 1, length=length).ks
    second = adaptive(machine, CODE, 500, 2, length=length).ks
    assert first[:6] == [0, 0, 0, 0, 0, 1] and second[0] == 0 and min(second[1:6]) >= 2
    adaptive(machine, HOSTILE, 500, 3, length=length)
    assert length.parked
    assert set(adaptive(machine, HOSTILE, FIRST_WAIT, 4, length=length).ks) == {0}


def test_a_second_process_starts_from_the_costs_of_the_first():
    machine, first = BY_NAME["M4 Pro (mlx 3852)"], Adaptive()
    adaptive(machine, CODE, 1000, 1, length=first)
    written = json.loads(json.dumps(first.to_dict(now_seconds=1e9)))
    second = Adaptive.from_dict(written, now_seconds=1e9 + 60)
    assert second.acceptance.habit == pytest.approx(first.acceptance.habit)
    for k in range(1, 4):
        known = second.costs.assumed.steps(k) + second.costs.assumed.rows(k + 1)
        assert known == pytest.approx(k * machine.draft_step + machine.rows(k + 1), rel=0.08)
    assert min(adaptive(machine, CODE, 100, 2, length=second).ks[1:6]) >= 1  # it drafts from the second round on
    assert Adaptive.from_dict(written, now_seconds=1e9 + BELIEVED_SECONDS + 1) is None
    with pytest.raises(KeyError):
        Adaptive.from_dict({"at": 1e9}, now_seconds=1e9)


def test_each_look_in_a_row_that_did_not_pay_doubles_the_wait_for_the_next():
    ks = adaptive(BY_NAME["M4 Pro (mlx 3852)"], HOSTILE, 500, 1).ks
    waits = [len(list(rounds)) for drafted, rounds in groupby(ks, bool) if not drafted][1:-1]
    assert len(waits) >= 4 and all(wait >= FIRST_WAIT << i for i, wait in enumerate(waits))


def test_it_says_why_it_is_parked():
    length = Adaptive()
    assert length.reason == UNTRIED and Adaptive(max_k=0).reason == ""
    adaptive(BY_NAME["M1 Pro"], PROSE, 200, 1, length=length)
    assert length.reason.startswith("parked: 1.") and length.reason.endswith("plain steps")
    later = Adaptive.from_dict(json.loads(json.dumps(length.to_dict(now_seconds=1e9))), now_seconds=1e9)
    assert later.reason == "parked: drafting did not pay before"


class Incurious(Adaptive):
    """Negative control: once parked, never probes again."""

    def next(self):
        return 0 if self.parked and self._rounds else super().next()


class CostBlind(Adaptive):
    """Negative control: takes every round to cost what it would on a machine where rows are nearly free."""

    def __init__(self):
        super().__init__()
        self.costs.round_steps = lambda k: 1 + 0.1 * k


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["forgets nothing", "never probes again"])
def test_without_forgetting_or_probing_again_the_mix_is_lost(broken, monkeypatch):
    machine = BY_NAME["CPU, inflated pair"]
    assert mix_against_best_fixed(machine) >= 1.05
    if broken == "forgets nothing":
        monkeypatch.setattr(acceptance, "FADE", 1.0)
    assert mix_against_best_fixed(machine, Incurious if broken == "never probes again" else Adaptive) < 1.05


def test_without_costs_an_m1_loses():
    machine = BY_NAME["M1 Pro"]
    took = sum(adaptive(machine, CODE, 300, seed, length=CostBlind()).seconds for seed in SEEDS)
    assert sum(fixed_seconds(machine.name, CODE, 0, 300, seed) for seed in SEEDS) / took < 0.8
