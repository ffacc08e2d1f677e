"""A tuning that was killed goes on where it was, to the same verdict; and its verdict comes in time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from specdec_cli.apps.tune import training
from specdec_cli.apps.tune.documents import SAID
from specdec_cli.apps.tune.figures import FEWEST, MEASURING, PIECES, TimePlan
from specdec_cli.apps.tune.kept import Kept, workplace
from specdec_cli.apps.tune.trainee import trainee
from specdec_cli.apps.tune.tuning import Tuning, identity
from specdec_cli.engine import training as engine


class Killed(BaseException):
    """In place of SIGKILL: nothing of the tuning runs after it."""


class Clock:
    """Each look at it takes a `tick` of 8 ms, exact in binary."""

    def __init__(self):
        self.now, self.tick = 0.0, 1 / 128

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def tune(spec, pair, parts, monkeypatch):
    """Tunes in a folder, by a clock of its own; returns what the verdict rests on."""
    monkeypatch.setattr(engine, "RATE", 2e-3)
    monkeypatch.setattr(training, "MOST_PIECES", 2)
    monkeypatch.setattr(training, "LOOK_STEPS", 6)
    monkeypatch.setattr(training.Training, "_steps", lambda *_: 12)

    def run(folder, report=lambda _: None, clock=None, seconds=10.0):
        folder.mkdir(exist_ok=True)
        kept = Kept(folder, clock=clock or Clock())
        tuning = Tuning(trainee("draft", spec, pair, 3, 0), parts, seconds, kept, 8)
        before, done = tuning.measure(report), tuning.learn(report)
        found = tuning.judge(done.best, report)
        return before, done, found

    return run


@pytest.mark.slow
def test_a_tuning_that_is_killed_in_any_phase_goes_on_where_it_was_to_the_same_verdict(tune, tmp_path):
    """Thrice in a row in each phase. It measured anew, listened to lessons that it had, and judged from the start."""
    seen = list[tuple[str, int]]()
    undisturbed = tune(tmp_path / "whole", lambda now: seen.append((now.doing, now.number)))
    phases = dict.fromkeys(doing for doing, _ in seen)
    assert [*phases] == ["measuring", "listening", "learning", "judging", "judging on bench's prompts"]
    for phase in phases:
        numbers = [number for doing, number in seen if doing == phase]
        for kill in dict.fromkeys((numbers[0], numbers[len(numbers) // 2], numbers[-1])):
            began = list[tuple[str, int]]()

            def report(now, phase=phase, kill=kill, began=began):
                began.append((now.doing, now.number))
                if (now.doing, now.number) == (phase, kill):
                    raise Killed

            with pytest.raises(Killed):
                tune(tmp_path / phase, report)
            if phase != "learning" and len(began) > 1:  # which goes on after its last look
                assert began in [seen[at : at + len(began)] for at in range(len(seen))]
        last = list[tuple[str, int]]()
        again = tune(tmp_path / phase, lambda now, last=last: last.append((now.doing, now.number)))
        for a, b in zip(again, undisturbed, strict=True):
            assert a == b, phase
        # The state of the last step was kept before it was said.
        assert last[0] == ((phase, numbers[-1]) if phase != "learning" else ("judging", 1))


@pytest.mark.parametrize("word", [0.0, 0.001, 0.02, 0.05, 0.3])
def test_measuring_and_judging_take_their_share_of_the_time_on_any_machine(word):
    """On a slow one fewer pieces, then words, then documents: no verdict came within 240 s after --minutes 1."""
    plan = TimePlan.within(60, word, drafters=2, documents=29, prompts=14)
    assert plan.before + plan.after <= MEASURING * 60 or plan.documents == FEWEST
    if word <= 0.001:
        assert (plan.documents, plan.pieces, plan.words, plan.prompts) == (29, PIECES // 29, SAID, 14)
    more = TimePlan.within(120, word, drafters=2, documents=29, prompts=14)
    assert (more.pieces, more.words, more.prompts) >= (plan.pieces, plan.words, 0)
    assert more.documents * more.words >= plan.documents * plan.words


@pytest.mark.slow
@pytest.mark.parametrize("slower", [1, 4])
def test_where_the_machine_becomes_slower_the_verdict_is_in_time_by_fewer_documents(tune, tmp_path, slower):
    """From the second document on. Judging is cut short last, and then both are of the same documents."""
    clock = Clock()

    def report(now):
        if (now.doing, now.number) == ("measuring", 2):
            clock.tick *= slower

    before, _, found = tune(tmp_path, report, clock)
    assert found.before.stats.keys() == found.after.stats.keys() <= before.stats.keys()
    assert (len(found.after.stats) == 6) == (slower == 1) and clock.now < 2 * 10
    assert found.judgement.acceptance.prompts == len(found.after.stats)


def test_what_was_kept_is_taken_only_where_all_is_the_same(spec, pair, parts, tmp_path):
    """Another text, model, option or number of minutes is measured anew."""
    learner = trainee("draft", spec, pair, 3, 0)
    again = [identity(trainee("draft", spec, pair, 3, 0), parts, 20, False)]
    others = [
        identity(trainee("draft", spec, pair, 3, 1), parts, 20, False),
        identity(trainee("draft", spec, pair, 2, 0), parts, 20, False),
        identity(trainee("medusa", spec, pair, 3, 0), parts, 20, False),
        identity(learner, parts, 21, False),
        identity(learner, parts, 20, True),
        identity(learner, replace(parts, judged=parts.judged[1:]), 20, False),
    ]
    weights = Path(spec.pair.draft) / "model.safetensors"
    stat = weights.stat()
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    others.append(identity(learner, parts, 20, False))
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with workplace(identity(learner, parts, 20, False)) as kept:
        folder = kept.folder
    found = []
    for one in again + others:
        with workplace(one) as kept:
            found.append(kept.folder)
    assert found[0] == folder and len({*found}) == len(found)
