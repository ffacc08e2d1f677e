"""The bench on a device that blocks the host as Metal does: it recommends the K that is best there, at true costs."""

from math import exp, log
from statistics import fmean

import pytest

from fakes.device import DrivenPair, FakeDevice
from fakes.machine import BY_NAME
from specdec_cli.bench.estimate import estimates
from specdec_cli.bench.live import AnswerSettings, LiveMachine
from specdec_cli.bench.plan import BenchPlan
from specdec_cli.bench.predict import cost_curve, rounds_at
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.recommend import recommend
from specdec_cli.bench.result import Condition, Contender
from specdec_cli.bench.sweep import Sweep
from specdec_cli.pairs.catalog import registry
from specdec_cli.session.load import load

DEEPEST, TOKENS = 3, 16
KS = tuple(range(DEEPEST + 1))
COSTLY_ROWS = DrivenPair(BY_NAME["M4 Pro (mlx 3852)"], 0.1, "Apple M4 Pro")
CHEAP_ROWS = DrivenPair(BY_NAME["M3 Ultra (mlx 4265)"], 0.07, "Apple M3 Ultra")
PROMPTS = [
    BenchPrompt("code", "lines", "def read_lines(path):\n    with open(path) as handle:\n        return [line"),
    BenchPrompt("code", "count", "def count_words(text):\n    counts = {}\n    for word in text.split():\n"),
    BenchPrompt("code", "class", "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push"),
]


def machine_of(pair, fake):
    """(machine, condition) of the demo pair on `fake`."""
    loaded = load(registry().find("demo"))
    session = loaded.session(loaded.first, fake.clock)
    pair.drive(fake, session)
    settings = AnswerSettings(TOKENS, "auto", 7, True, True)
    machine = LiveMachine({session.names[1]: session}, settings, lambda: False, fake.clock)
    return machine, Condition(Contender("model", session.names[1]), 0.0)


def log_speedups(pair, offline):
    """[K] = the mean log speed-up over prompts by the pair's costs."""
    found = [0.0]
    for k in range(1, DEEPEST + 1):
        logs = []
        for one in offline:
            steps = sum(d * pair.step + pair.machine.rows(d + 1) for d, _ in rounds_at(one, k))
            logs.append(log((one.tokens - 1) / steps))
        found.append(fmean(logs))
    return found


@pytest.mark.parametrize("pair", [COSTLY_ROWS, CHEAP_ROWS], ids=lambda pair: pair.chip[6:])
def test_the_recommended_k_is_the_best_and_its_costs_are_true(monkeypatch, pair):
    machine, condition = machine_of(pair, FakeDevice().install_as(pair.chip, monkeypatch))
    done = Sweep(machine, BenchPlan(KS, 60.0), [condition], PROMPTS)
    done.run()
    curve = cost_curve(done.costs)
    for k in range(1, DEEPEST + 1):
        assert curve.verify[k + 1] == pytest.approx(pair.machine.rows(k + 1), rel=0.05)
        assert curve.draft[k] / k == pytest.approx(pair.step, rel=0.05)
    assert curve.plain_seconds == pytest.approx(pair.machine.plain_seconds, rel=0.01)
    found = estimates(condition, KS, done.samples, done.offline, done.costs)
    advice, true = recommend(condition, found), log_speedups(pair, done.offline)
    assert (advice.answer, advice.k) == ("use", true.index(max(true)))
    assert advice.speedup.mean == pytest.approx(exp(max(true)), rel=0.05)


def test_costs_are_off_where_the_clock_is_read_after_the_verification_is_queued(monkeypatch):
    """Negative control: the order of before bills most of a verification to the draft."""
    fake = FakeDevice().install_as(CHEAP_ROWS.chip, monkeypatch)
    wait = fake.wait
    monkeypatch.setattr("specdec_cli.engine.device.wait", lambda *arrays: (fake.queue(), wait(*arrays)))
    machine, condition = machine_of(CHEAP_ROWS, fake)
    curve = cost_curve(machine.costs(condition, PROMPTS[0], (1, 2, 3, 4), KS[1:]))
    for k in KS[1:]:
        assert curve.draft[k] / k > 2 * CHEAP_ROWS.step
        assert curve.verify[k + 1] < 0.5 * CHEAP_ROWS.machine.rows(k + 1)
