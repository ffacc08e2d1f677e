"""What a released pair's draft says along its target's own answers (`tests/benchmarks/record_answers.py`).

Replayed on seven machines, over the best K with hindsight where drafting pays, over plain decoding where it does not:
seconds of whole replies, the draft's reading of the prompt included. Bounds are what was reached.
"""

import json
from pathlib import Path
from statistics import fmean

import pytest

from fakes.machine import Machine, Recorded, Text, assumed, play
from specdec_cli.engine.planning.history import History

FILE = Path(__file__).parents[3] / "fakes/recorded/answers.jsonl"
ANSWERS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def machine(name, draft_step, rows, read=1 / 8):
    return Machine(name, draft_step, rows, noise=0.1, spikes=0.05, spike=2.0, read_token=draft_step * read)


# With what the weights say of a draft step before anything is measured.
MACHINES = (
    (machine("flat", 0.05, {2: 1.02, 4: 1.05, 9: 1.25}), 0.04),
    (machine("M4 Pro", 0.15, {2: 1.02, 3: 1.13, 4: 1.43, 5: 1.75, 9: 3.1}), 0.15),
    (machine("CPU", 0.40, {2: 1.15, 3: 1.32, 4: 1.45, 5: 1.52, 9: 1.8}, 1 / 10), 0.32),
    (machine("M2 Ultra", 0.10, {2: 1.4, 4: 2.2, 9: 4.2}), 0.08),
    (machine("M1", 0.33, {2: 1.35, 33: 12.2}), 0.33),
    (machine("dear", 0.45, {2: 1.1, 33: 4.2}), 0.32),
    (machine("CPU, demo", 0.28, {2: 1.2, 5: 1.8, 9: 2.6}, 1 / 10), 0.15),
)


def replayed(drafter, kinds, tokens, warm):
    """(over the best K where some K pays, over plain decoding elsewhere), means over machines."""
    over_best, over_plain = [], []
    for machine, ratio in MACHINES:
        took, fixed = 0.0, [0.0] * 9
        for seed, answer in enumerate(one for one in ANSWERS if one["kind"] in kinds):
            hits = (a == b for a, b in zip(answer[drafter], answer["answer"], strict=True))
            text, prompt, history = (
                Recorded(answer["name"], tuple(hits)),
                answer["prompt"],
                History(assumed(ratio)),
            )
            for index, rate in enumerate((0.6, 0.8, 0.4, 0.8) if warm else ()):
                history.begin(64, 48)
                play(machine, Text("mixed", ((1, rate, 1.0),)), history, 64, 900 + index, 48)
            history.begin(tokens, prompt)
            took += play(machine, text, history, tokens, seed, prompt).seconds
            fixed = [sofar + play(machine, text, k, tokens, seed, prompt).seconds for k, sofar in enumerate(fixed)]
        (over_best if min(fixed) < fixed[0] else over_plain).append(min(fixed) / took)
    return fmean(over_best or [1.0]), fmean(over_plain or [1.0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "kinds", "tokens", "warm", "least"),
    [
        ("draft", ("code", "edit"), 40, False, 0.955),
        ("draft", ("code", "edit"), 256, True, 0.97),
        ("draft", ("prose", "chat"), 40, False, 0.92),
        ("draft", ("prose", "chat"), 256, True, 0.975),
        ("nothing", ("code", "edit", "prose", "chat"), 40, False, 0.89),
        ("nothing", ("code", "edit", "prose", "chat"), 256, True, 0.96),
    ],
)
def test_auto_comes_near_the_best_k_and_loses_little_to_a_draft_of_nothing(drafter, kinds, tokens, warm, least):
    assert min(replayed(drafter, kinds, tokens, warm)) >= least
