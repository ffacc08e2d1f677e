"""A tuning: its figures, what it keeps; killed, it goes on to the same verdict, and that comes in time."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.racing import Clock
from specdec_cli.apps.tune import training, tuning
from specdec_cli.apps.tune.documents import SAID
from specdec_cli.apps.tune.figures import FEWEST, MEASURING, PIECES, DocumentRounds, Measured, TimePlan, judge
from specdec_cli.apps.tune.kept import Kept, workplace
from specdec_cli.apps.tune.trainee import trainee
from specdec_cli.apps.tune.tuning import Tuning, identity
from specdec_cli.core.stats import Stats
from specdec_cli.engine import training as engine


class Killed(BaseException):
    """In place of SIGKILL: nothing of the tuning runs after it."""


TICK = 1 / 128  # each look at the clock takes 8 ms, exact in binary


@pytest.fixture
def tune(spec, pair, parts, monkeypatch):
    """Tunes in a folder, by a clock of its own; returns what the verdict rests on."""
    monkeypatch.setattr(engine, "RATE", 2e-3)
    monkeypatch.setattr(training, "MOST_PIECES", 2)
    monkeypatch.setattr(training, "LOOK_STEPS", 6)
    monkeypatch.setattr(training.Training, "_steps", lambda *_: 12)

    def run(folder, report=lambda _: None, clock=None, seconds=10.0):
        folder.mkdir(exist_ok=True)
        kept = Kept(folder, clock=clock or Clock(TICK))
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
    on_prompts = [f"judging on bench's prompts, {when}" for when in ("before", "after")]
    assert [*phases] == ["measuring", "listening", "learning", "judging", *on_prompts]
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


def test_the_time_that_is_said_counts_reading_once_and_follows_what_each_document_took(
    spec, pair, parts, monkeypatch, tmp_path
):
    """It was 4.4 times what came: reading was counted with each of 16 words, and the longest piece for every other."""
    clock, reading, word, said = Clock(), 0.5, 0.05, list[float]()

    def measure(session, pieces, words, *_):
        clock.now += reading + words * word
        return DocumentRounds(Stats(rounds=1, emitted_tokens=1), 0, [0.0], [1.0], [1.0])

    monkeypatch.setattr(tuning, "measure", measure)
    tuned = Tuning(trainee("draft", spec, pair, 3, 0), parts, 600.0, Kept(tmp_path, clock=clock), 8, predict_only=True)
    assert tuned.plan.piece == pytest.approx(reading + SAID * word)
    word /= 10
    tuned.measure(lambda now: said.append(now.seconds / (now.of - now.number + 1)))
    pieces = tuned.plan.pieces
    first, others = pieces * (reading + SAID * word * 10), reading + SAID * word
    assert said == [pytest.approx(first), *[pytest.approx(others)] * (len(said) - 1)] and len(said) > 2


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
    clock = Clock(TICK)

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


def stats(accepted, rejected, emitted, passes):
    return Stats(draft_n_accepted=accepted, rejected_n=rejected, emitted_tokens=emitted, rounds=passes)


def measured(documents, k=3, near=0, plain=0.010, draft=0.003, verify=0.012):
    return Measured(k, documents, near, plain, draft, verify)


def simulated(odds, seed=0, documents=40, k=3, passes=30):
    """A document has odds of its own; `odds` moves all of them alike."""
    draw, found = random.Random(seed), {}
    for name in range(documents):
        own, accepted, rejected = odds + random.Random(name).uniform(-0.2, 0.2), 0, 0
        for _ in range(passes):
            n = next((at for at in range(k) if draw.random() > own), k)
            accepted, rejected = accepted + n, rejected + (n < k)
        found[f"{name}"] = stats(accepted, rejected, accepted + passes, passes)
    return measured(found, k)


def test_the_figures_of_a_prediction_by_hand():
    found = measured({"a": stats(6, 2, 10, 4), "b": stats(2, 2, 6, 4)}, near=3)
    assert found.acceptance.mean == pytest.approx((0.75 + 0.5) / 2) and found.acceptance.prompts == 2
    assert (found.tokens_a_pass, found.near_share) == (2.0, 0.75)
    assert found.steps == pytest.approx(1.5)  # 3 ms of draft and 12 ms of target, over plain steps of 10 ms
    assert (found.speedup, found.perfect) == (pytest.approx(2 / 1.5), pytest.approx(4 / 1.5))
    assert measured(found.stats, draft=0.002, verify=0.007).steps == 1.0  # measured on a busy machine


def test_nothing_is_to_be_gained_where_even_a_perfect_draft_would_not_pay_or_this_one_is_perfect():
    some = {"a": stats(6, 2, 10, 4)}
    assert measured(some).nothing_to_gain == ""
    slow = measured(some, draft=0.030).nothing_to_gain
    assert slow == "even a draft that is always right would not pay: 0.95× plain decoding"
    assert measured({"a": stats(30, 0, 40, 10)}).nothing_to_gain.startswith("4.00 tokens a pass leave less than 2 %")


def test_a_clear_gain_is_kept_and_a_loss_or_no_change_is_not():
    before = simulated(0.6)
    gain, loss, same = (judge(before, simulated(odds, seed=1)) for odds in (0.75, 0.45, 0.6))
    assert gain.refusal == "" and gain.acceptance.low > 0 and gain.passes.mean > 1.02
    assert loss.refusal == "acceptance fell on documents it never saw" and loss.passes.high < 1
    assert same.refusal == "acceptance did not rise beyond noise on documents it never saw"


def test_a_gain_that_is_certain_and_small_is_not_kept():
    before = measured({f"{n}": stats(500 + n, 500, 1000 + n, 500) for n in range(20)})
    after = measured({f"{n}": stats(504 + n, 496, 1004 + n, 500) for n in range(20)})
    assert judge(before, after).refusal == "0.4 % faster than before, and less than 2 % faster is not noticed"


def test_chance_alone_is_kept_at_most_once_in_twenty():
    """60 trainings that change nothing: a lower bound of 95 % is above 0 by chance in 2.5 %; more than 6: 1 in 1000."""
    before = simulated(0.6)
    kept = [seed for seed in range(1, 61) if judge(before, simulated(0.6, seed)).acceptance.low > 0]
    assert len(kept) <= 6
