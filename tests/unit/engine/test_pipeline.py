"""Clocks and queues on a device whose `async_eval` blocks the host as Metal's does. Units: plain steps of a second."""

from itertools import count
from time import perf_counter

import mlx.core as mx
import numpy as np
import pytest

from fakes.device import FakeDevice
from fakes.models import tiny_network
from fakes.scored import ScoredModel
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import TIMED_EVERY
from specdec_cli.engine.sampling.acceptance import greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.timing import plain_step_seconds

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
DRAFT_STEP, ROW = 0.1, 0.2
TARGET_BUFFERS, DRAFT_BUFFERS = 33, 4


def verify(rows):
    return 1 + ROW * (rows - 1)


class TextModel(ScoredModel):
    """Knows its text by heart, except where `wrong(position)`; n rows take costs(n)."""

    def __init__(self, device: FakeDevice, text, costs, buffers: int, wrong=lambda position: False) -> None:
        self.device, self.text, self.costs, self.buffers, self.wrong = device, text, costs, buffers, wrong
        self.vocab_size = max(text) + 2

    def rows(self, tokens):
        self.device.work(self.costs(tokens.size), self.buffers)
        rows = []
        for position in range(self.length + 1, self.length + 1 + tokens.size):
            token = self.text[position % len(self.text)]
            rows.append(mx.arange(self.vocab_size) == (self.vocab_size - 1 if self.wrong(position) else token))
        return mx.stack(rows).astype(mx.float32)

    def prefill(self, context):
        output = self.forward(mx.zeros(max(len(context) - 1, 1)))
        self.device.wait(output.logits)
        yield output


def models(fake, wrong=lambda position: False, draft_of=TextModel, target_of=TextModel):
    """A target that knows the text, and a draft that is wrong at some positions."""
    draft = draft_of(fake, TEXT, lambda rows: DRAFT_STEP * rows, DRAFT_BUFFERS, wrong)
    return target_of(fake, TEXT, verify, TARGET_BUFFERS), draft


def run(
    fake,
    k,
    tokens=60,
    wrong=lambda position: False,
    each=lambda round: None,
    draft_of=TextModel,
    target_of=TextModel,
):
    """(rounds, host seconds of the whole reply)."""
    target, draft = models(fake, wrong, draft_of, target_of)
    rule = greedy(target.vocab_size)
    drafters = Drafters(ModelDrafter(draft, target.vocab_size, rule), k)
    rounds = []
    for round in decode(target, drafters, rule, [3], tokens, frozenset(), fake.clock):
        rounds.append(round)
        each(round)
    return rounds, fake.now


def drafted(rounds):
    """Drafted rounds after the first, which also pays for the draft's prefill."""
    return [round for round in rounds if round.draft][1:]


@pytest.fixture
def fake(monkeypatch):
    return FakeDevice().install(monkeypatch)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_timed_round_bills_the_draft_and_its_verification_what_they_took(fake, k):
    """mlx stops the host until ten buffers are left: with both queued at once the draft was billed the verification."""
    rounds, _ = run(fake, k, tokens=20 * (k + 1))
    for round in drafted(rounds)[:-1]:
        assert round.draft_seconds == pytest.approx(k * DRAFT_STEP, rel=0.05)
        assert round.verify_seconds == pytest.approx(verify(k + 1), rel=0.05)


def test_a_round_is_handed_on_before_more_than_one_draft_step_of_the_next_is_queued(fake):
    """Text, panel and Ctrl-C lagged by nearly a whole verify pass."""
    backlogs = []
    run(fake, 4, each=lambda round: backlogs.append(fake.backlog_seconds) if round.draft else None)
    assert 0 < max(backlogs) <= DRAFT_STEP * 1.001


def test_the_device_works_while_the_caller_prints(fake):
    """The first draft step costs nothing where the caller takes that long."""
    _, alone = run(fake, 4, tokens=50)
    other = FakeDevice()
    printing = 0.5 * DRAFT_STEP
    with pytest.MonkeyPatch.context() as patch:
        other.install(patch)
        rounds, busy = run(other, 4, tokens=50, each=lambda round: other.spend(printing))
    hidden = alone + printing * len(rounds) - busy
    assert hidden == pytest.approx(printing * (len(drafted(rounds))), rel=0.15)


def test_a_cpu_starts_nothing_ahead_and_times_every_round(monkeypatch):
    fake = FakeDevice().install(monkeypatch, ahead=False)
    backlogs = []
    rounds, _ = run(fake, 4, each=lambda round: backlogs.append(fake.backlog_seconds) if round.draft else None)
    assert max(backlogs) == 0
    prefill = 1
    assert fake.waits == len(rounds) + sum(bool(round.draft) for round in rounds) + prefill


def test_where_waiting_costs_only_some_rounds_are_timed_apart(monkeypatch):
    """The first two drafted rounds, then one in eight; the others are split in the proportion of the last one."""
    fake = FakeDevice(wakeup_seconds=0.01).install(monkeypatch)
    rounds, _ = run(fake, 4, tokens=200)
    ks = [len(round.draft) for round in rounds if round.draft]
    assert set(ks[:-1]) == {4} and ks[-1] < 4  # the shorter last draft is a K of its own
    prefill, last = 1, 1
    assert fake.waits - len(rounds) - prefill == 2 + len(ks[:-1]) // TIMED_EVERY + last
    for round in drafted(rounds)[:-1]:
        assert round.draft_seconds == pytest.approx(4 * DRAFT_STEP, rel=0.1)


class CatchingUp(TextModel):
    """Feeds first what it has not read, as a real draft does after full acceptance."""

    def unfed(self, context):
        if unread := len(context) - 1 - self.length:
            self.device.work(self.costs(unread), self.buffers)
        return super().unfed(context)


def test_a_draft_that_feeds_one_token_more_after_full_acceptance_is_billed_for_it(fake):
    """One share for both kinds of rounds was up to 21 % off where each row costs the draft a step, as on M1."""
    rounds, _ = run(fake, 4, tokens=200, wrong=lambda position: position % 11 == 0, draft_of=CatchingUp)
    full = [before.accepted == 4 for before in rounds]
    assert 10 < sum(full) < len(rounds) - 10
    for after_full, round in list(zip(full, rounds[1:], strict=False))[2:-1]:
        assert round.draft_seconds == pytest.approx((len(round.draft) + after_full) * DRAFT_STEP, rel=0.05)


def test_the_next_draft_runs_while_the_host_builds_a_recurrent_targets_rollback(fake):
    """The device was idle until the graph of every recurrent layer was built, in each round with a rejection."""
    backlogs, building = [], 0.5 * DRAFT_STEP

    class Recurrent(TextModel):
        def commit(self, context, length):
            if length < self.length:
                backlogs.append(self.device.backlog_seconds)
                self.device.spend(building)
            super().commit(context, length)

    def wrong(position):
        return position % 7 == 0

    rounds, seconds = run(fake, 4, wrong=wrong, target_of=Recurrent)
    assert len(backlogs) == sum(round.accepted < len(round.draft) for round in rounds) > 5
    assert min(backlogs) > 0
    with pytest.MonkeyPatch.context() as patch:
        other = FakeDevice().install(patch)
        _, trimmed = run(other, 4, wrong=wrong)
    assert seconds == pytest.approx(trimmed)


# What a plain step costs.


def test_plain_steps_are_timed_each_and_leave_the_memo_where_it_was():
    model, ids = CachedModel(tiny_network(seed=1), "m"), [3, 4, 5, 6]
    before = np.array(model.logits(ids, NO_TOKENS))
    ticks = count(0, 32)
    found = plain_step_seconds(model, greedy(model.vocab_size), ids, 4, lambda: float(next(ticks)))
    assert found == [8.0] * 4
    assert model.length == len(ids) - 1
    np.testing.assert_allclose(np.array(model.logits(ids, NO_TOKENS)), before, atol=2e-4)


def test_plain_steps_amid_a_reply_change_none_of_its_tokens():
    """Under `block` each position is judged with noise of its own, so a step that is taken back leaves no trace."""

    def said(measuring):
        target, draft = CachedModel(tiny_network(seed=1), "t"), CachedModel(tiny_network(seed=2), "d")
        rule = make_rule("block", Sampler(Sampling(1.0, repetition_penalty=1.2), 7, [3, 4], target.vocab_size))
        context = [3, 4]
        drafters = Drafters(ModelDrafter(draft, target.vocab_size, rule), 3)
        for round in decode(target, drafters, rule, context, 16, frozenset(), perf_counter):
            if measuring and round.draft:
                plain_step_seconds(target, rule, context, 2, perf_counter)
        return context

    assert said(measuring=True) == said(measuring=False)
