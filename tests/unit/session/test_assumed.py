"""What a session assumes of a mixture of experts on a Mac, played on machines as their kernels suggest. (Simulated.)"""

from functools import cache
from statistics import fmean

import pytest

from fakes.chips import CURVES
from fakes.machine import Machine, Text, play
from fakes.packed import gpt_oss, model_as
from specdec_cli.core import kinds
from specdec_cli.core.gain import TYPICAL_ROW_COST
from specdec_cli.engine import device
from specdec_cli.engine.planning.chips import EXPERT_ROW_COST, LAUNCH_SHARE
from specdec_cli.engine.planning.history import History
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.session.meter import DraftController

# The curve that stands for a chip.
CHIPS = {"Apple M2 Max": "Apple M2 Pro", "Apple M3 Pro": "Apple M3 Max", "Apple M5": "Apple M5 Max"}
TEXT, SEEDS = Text("seven in ten", ((1, 0.7, 1.0),)), {40: 20, 512: 5}


@cache
def models():
    """gpt-oss-120b and its draft, gpt-oss-20b."""
    return model_as(gpt_oss(36, 128)), model_as(gpt_oss(24, 32))


def assumed(monkeypatch, chip):
    monkeypatch.setattr(device, "device_name", lambda: chip)
    monkeypatch.setattr(device, "queues_ahead", lambda: True)
    (target, draft), meant = models(), kinds.drafting("model", "auto")
    drafters = DraftController(target, draft).begin(meant.kind, meant.k, greedy(target.vocab_size), [1] * 64, 500)
    return drafters.history.costs.assumed


def test_a_mixture_of_experts_costs_what_it_reads(monkeypatch):
    """The bug: a draft step of 0.24 plain steps, and 0.05 for a second row."""
    costs = assumed(monkeypatch, "Apple M3 Pro")
    assert costs.draft[1] == pytest.approx(3.18 / 4.17 + LAUNCH_SHARE * 24 / 36, rel=0.01)
    experts = 1.90 / 4.17
    assert costs.passes()[2] == pytest.approx(1 + EXPERT_ROW_COST * experts + 0.1 * (1 - experts), abs=0.02)


def test_so_it_does_on_a_device_that_is_not_known(monkeypatch):
    experts = 1.90 / 4.17
    row = assumed(monkeypatch, "x86_64").passes()[2] - 1
    assert row == pytest.approx(EXPERT_ROW_COST * experts + TYPICAL_ROW_COST * (1 - experts), abs=0.01)


@pytest.mark.parametrize("tokens", SEEDS)
@pytest.mark.parametrize("chip", CHIPS)
def test_gpt_oss_120b_does_not_draft_with_20b_where_it_loses(monkeypatch, chip, tokens):
    """The bug: it drafted at once on an M3 Pro and an M5, and took a reply of 40 tokens to 0.83 of plain decoding."""
    costs, curve = assumed(monkeypatch, chip), {name: rows for name, rows, _ in CURVES}[CHIPS[chip]]
    experts = 1.90 / 4.17
    rows = {n: cost * (1 - experts) + (1 + 0.9 * (n - 1)) * experts for n, cost in curve.items()}
    machine = Machine(chip, 0.77, rows, spikes=0.0)
    found = []
    for seed in range(SEEDS[tokens]):
        history = History(costs, 8, 0.0)
        history.begin(tokens, 64)
        found.append(play(machine, TEXT, 0, tokens, seed).seconds / play(machine, TEXT, history, tokens, seed).seconds)
    assert fmean(found) == pytest.approx(1, abs=0.01)
