"""The bench on a device that blocks the host as Metal does: it recommends the K that is best there, at true costs."""

from dataclasses import replace
from math import log
from statistics import fmean

import pytest

from fakes.bench import SETTINGS, run_bench
from fakes.device import DrivenPair, FakeDevice
from fakes.machine import BY_NAME
from specdec_cli.bench.estimate import estimates, recommend
from specdec_cli.bench.live import LiveMachine
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.report import cost_curve
from specdec_cli.bench.result import Condition, Contender
from specdec_cli.bench.sweep import BenchRequest
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
    settings = replace(SETTINGS, seed=7, ends="fixed", raw=True)
    request = BenchRequest(loaded.pair, settings, (), ("model",), tuple(PROMPTS))
    machine = LiveMachine({session.names[1]: session}, request, clock=fake.clock)
    return machine, Condition(Contender("model", session.names[1]), 0.0)


def true_log_speedup(pair, samples):
    """The mean over prompts by the pair's costs, of the rounds that were really run."""
    logs = []
    for one in samples:
        rounds = [n - more for n, more in zip(one.drafted_at, (*one.drafted_at[1:], 0), strict=True)]
        steps = sum(times * (d * pair.step + pair.machine.rows(d + 1)) for d, times in enumerate(rounds, 1))
        steps += one.target_passes - 1 - sum(rounds)
        logs.append(log((one.emitted_tokens - 1) / steps))
    return fmean(logs)


@pytest.mark.full
@pytest.mark.parametrize("pair", [COSTLY_ROWS, CHEAP_ROWS], ids=lambda pair: pair.chip[6:])
def test_the_recommended_k_is_the_best_and_its_costs_are_true(monkeypatch, pair):
    machine, condition = machine_of(pair, FakeDevice().install_as(pair.chip, monkeypatch))
    done = run_bench(machine, PROMPTS, budget_seconds=60.0, ks=KS, max_tokens=TOKENS)
    curve = cost_curve(done.costs)
    for k in range(1, DEEPEST + 1):
        assert curve.verify[k + 1] == pytest.approx(pair.machine.rows(k + 1), rel=0.05)
        assert curve.draft[k] / k == pytest.approx(pair.step, rel=0.05)
    assert curve.plain_seconds == pytest.approx(pair.machine.plain_seconds, rel=0.01)
    arms = [condition.arm(k) for k in KS[1:]]
    true = {arm.k: true_log_speedup(pair, [s for s in done.samples if s.arm == arm]) for arm in arms}
    found = {one.arm.k: one for one in estimates(arms, done.samples)}
    best = max(true, key=true.get)
    assert max(found.values(), key=lambda one: one.interval.mean).arm.k == best
    assert found[best].interval.mean == pytest.approx(true[best], abs=0.05)
    assert recommend(condition, list(found.values())).k in (best, "auto")


@pytest.mark.slow
def test_costs_are_off_where_the_clock_is_read_after_the_verification_is_queued(monkeypatch):
    """Negative control: the order of before bills most of a verification to the draft."""
    fake = FakeDevice().install_as(CHEAP_ROWS.chip, monkeypatch)
    wait = fake.wait
    monkeypatch.setattr("specdec_cli.engine.device.wait", lambda *arrays: (fake.queue(), wait(*arrays)))
    machine, condition = machine_of(CHEAP_ROWS, fake)
    step = 1 / machine.answer(condition.arm(0), PROMPTS[0], TOKENS).tokens_per_second
    for k in KS[1:]:
        sample = machine.answer(condition.arm(k), PROMPTS[0], TOKENS)
        assert sample.round_draft_seconds / step / k > 2 * CHEAP_ROWS.step
        assert sample.round_verify_seconds / step < 0.5 * CHEAP_ROWS.machine.rows(k + 1)
