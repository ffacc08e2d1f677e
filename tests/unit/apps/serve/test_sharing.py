"""Requests that overlap share their passes: who does, what fails with whom, and what it costs each."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import mlx.core as mx
import pytest

from fakes.serving import alone, answer, ids, job, tiny_loaded, together
from specdec_cli.apps.serve import running
from specdec_cli.apps.serve.scheduler import FairClock, Scheduler
from specdec_cli.core.events import Failure, Finish, RoundDone
from specdec_cli.engine.batch import Batch, Member
from specdec_cli.engine.cache.rows import MOST_GAPS
from specdec_cli.engine.planning import policy
from specdec_cli.engine.planning.policy import Plan
from specdec_cli.session.meter import STEPS, GainMeter


@pytest.fixture
def pair(tiny):
    return tiny


@pytest.fixture
def cheap(monkeypatch):
    """Jobs share passes, whatever these cost on this machine."""
    monkeypatch.setattr(running, "COMPARED_TOKENS", 1 << 60)


@pytest.fixture
def desk(pair, open_desk, cheap):
    return open_desk(pair, parallel=8)


def plain_jobs(count, tokens=40, first=0, **more):
    return [job(ids(20, first + n), tokens, **{"k": "auto", **more}) for n in range(count)]


def sizes(clients):
    """How many requests shared each round's pass."""
    return Counter(event.round.batch_size for client in clients for event in client.events if type(event) is RoundDone)


def test_who_goes_on_with_an_answer_reads_only_what_is_new(pair, desk):
    """What was said in shared passes is in the conversation's own caches."""
    first = together(desk, plain_jobs(4, 30))
    for n, client in enumerate(first):
        longer = (*ids(20, n), *client.end.tokens, *ids(5, 50 + n))
        assert answer(desk, job(longer, 5)).read_tokens <= 7


@pytest.mark.parametrize(
    ("what", "at", "error"),
    [
        ("queue", 6, RuntimeError("[METAL] Insufficient Memory")),
        ("queue", 6, RuntimeError("[METAL] Impacting Interactivity")),
        ("queue", 6, ValueError("?")),
        ("read", 1, RuntimeError("[METAL] Insufficient Memory")),
    ],
    ids=str,
)
def test_a_shared_pass_or_reading_that_fails_ends_those_who_share_it_and_nobody_later(
    pair, desk, monkeypatch, what, at, error
):
    done, sharers = getattr(Batch, what), []

    def failing(self, asked):
        sharers.append(len(self.members) if what == "queue" else len(asked))
        if len(sharers) == at:
            raise error
        done(self, asked)

    monkeypatch.setattr(Batch, what, failing)
    failed = [end for client in together(desk, plain_jobs(4, 24)) if isinstance(end := client.end, Failure)]
    assert len(failed) == sharers[at - 1] >= 2 and all(end.hint for end in failed)
    again = plain_jobs(4, 24, first=40)
    assert [client.end.tokens for client in together(desk, again)] == [alone(pair, one) for one in again]
    assert len(sharers) > at


def test_a_row_of_values_that_are_no_numbers_ends_its_own_request(pair, desk, monkeypatch):
    """Of one conversation, in the middle of a shared pass."""
    queue, spoiled = Batch.queue, []

    def spoiling(self, tokens):
        queue(self, tokens)
        if len(tokens) == 3 and not spoiled:
            spoiled.extend([*tokens][:1])
            output = self.queued[spoiled[0]]
            self.queued[spoiled[0]] = replace(output, logits=output.logits * mx.array(float("nan")))

    monkeypatch.setattr(Batch, "queue", spoiling)
    jobs = plain_jobs(3)
    ends = [client.end for client in together(desk, jobs)]
    assert sum(isinstance(end, Failure) and "not numbers" in end.message for end in ends) == 1
    assert all(end.tokens == alone(pair, one) for end, one in zip(ends, jobs, strict=True) if isinstance(end, Finish))


def test_no_plain_step_is_measured_in_a_row_of_a_shared_pass(pair, desk, monkeypatch):
    """It was fed to caches that were behind, so that the reply went on with another text once it was alone."""

    def drafts(situation, others):
        drafted = Plan(situation.network, min(3, situation.most), shared=True)
        return drafted if situation.network and situation.most and not situation.first else Plan(shared=True)

    monkeypatch.setattr(policy, "plan_shared", drafts)
    monkeypatch.setattr(GainMeter, "_due", lambda meter: meter._drafted and meter.left > STEPS + 1)
    monkeypatch.setattr(GainMeter, "_within_budget", lambda meter: True)
    jobs = [job(ids(20, n), 24 * (n + 1)) for n in range(3)]
    clients = together(desk, jobs)
    assert max(sizes(clients)) > 1
    assert [client.end.tokens for client in clients] == [alone(pair, one) for one in jobs]


def test_a_fixed_k_shares_but_where_its_rounds_decide_what_is_drawn(pair, desk):
    """Under a seed and another rule than `coupled` the text is that of its rounds, so they are its own."""
    jobs = plain_jobs(3, 20, k=3)
    clients = together(desk, jobs)
    assert max(sizes(clients)) > 1
    assert [client.end.tokens for client in clients] == [alone(pair, one) for one in jobs]
    drawn = [job(ids(20, n), 20, k=3, seed=n, rule="block", sampling={"temperature": 0.9}) for n in range(3)]
    clients = together(desk, drawn)
    assert set(sizes(clients)) == {1}
    assert [client.end.tokens for client in clients] == [alone(pair, one) for one in drawn]


def test_quantized_caches_take_turns_and_health_says_so(tmp_path, open_desk):
    desk = open_desk(tiny_loaded(tmp_path, kv_bits=8), parallel=4)
    clients = together(desk, plain_jobs(3, 20))
    status = desk.status()
    assert set(sizes(clients)) == {1} and "QuantizedKVCache" in status.turns and not status.sharing


def test_where_turns_with_drafts_give_more_nobody_shares_for_long(pair, desk, monkeypatch):
    """Shared passes are tried before they are judged."""
    monkeypatch.setattr(running, "COMPARED_TOKENS", 12)
    monkeypatch.setattr(running.Comparison, "won", False)
    found = sizes(together(desk, plain_jobs(3, 40, k=0)))
    assert found[1] > found[2] + found[3] > 0


def test_status_counts_who_shares(pair, desk):
    seen = []
    note = lambda client, event: seen.append(desk.status().sharing)  # noqa: E731
    together(desk, plain_jobs(4, 30), note)
    assert max(seen) == 4 and desk.status().sharing == 0


class Asked:
    """A job that decodes, as far as sharing asks; a turn of it takes a second."""

    def __init__(self, pair, prompt_tokens, tokens=10):
        self.handle, self.stage = SimpleNamespace(job=job(ids(prompt_tokens), tokens)), running.Stage.DECODES
        self.member, self.emitted, self.drafted = Member(Batch(pair.first.target.network)), 1, False
        self.last_seconds = 1.0


@pytest.fixture
def three(pair):
    """(sharing, three jobs)."""
    return running.Sharing(pair, 4), [Asked(pair, tokens) for tokens in (20, 30, 40)]


def test_what_was_proved_of_target_and_draft_is_not_proved_again(pair, three, monkeypatch):
    """A pair that another one took the place of, and that is back."""
    proof = three[0].proof
    monkeypatch.setattr(running, "prove", pytest.fail)
    assert running.Sharing(pair, 4, proof)._batch.drafts is not None
    assert running.Sharing(pair, 4, replace(proof, shares_steps=False))._batch.drafts is None


def test_with_a_byte_less_than_the_rows_need_the_longest_takes_turns(pair, three):
    """Rows are as long as the longest, and there are a power of two of them."""
    sharing, asked = three
    for few in (3, 2):
        rows = [part.row_bytes for part in pair.fit.sizes(10 * few + 20 + MOST_GAPS)]
        need = sum(rows) * (4 if few == 3 else 2)
        for room, sharers in ((need, few), (need - 1, few - 1 if few > 2 else 0)):
            sharing.choose(asked[:few], room)
            assert [job.member.shares for job in asked[:few]] == [at < sharers for at in range(few)]


def test_who_still_reads_is_to_share_with_one_that_decodes_whatever_it_had_alone(three):
    sharing, (decodes, reads, _) = three
    for _ in range(2 * running.COMPARED_TOKENS):  # the last one of those who shared
        sharing.observe([decodes], 1.0)
    reads.stage = running.Stage.READS
    sharing.choose([decodes, reads], 1 << 60)
    assert reads.member.shares and not decodes.member.shares


def go_on(sharing, asked, pass_seconds, drafts=False):
    """A pass of all or a turn of each, whichever it is time for; whether it was shared."""
    sharing.choose(asked, 1 << 60)
    for one in asked:
        one.drafted = drafts
    if shared := asked[0].member.shares:
        sharing.observe(asked, pass_seconds)
    else:
        for one in asked:
            sharing.observe_turn(one)
    return shared


@pytest.mark.parametrize(("seconds", "emitted", "pays"), [(2.9, 1, True), (3.1, 1, False), (3.1, 2, False)])
def test_what_takes_less_time_a_token_is_kept_a_pass_for_all_or_a_turn_of_each(three, seconds, emitted, pays):
    """Both are tried; what loses is tried again, half as often while it loses, but never less than so often."""
    sharing, asked = three
    for one in asked:
        one.emitted = emitted
    ways = [go_on(sharing, asked, seconds) for _ in range(6 * running.MOST_PASSES)]
    shared, turns = 1 + running.COMPARED_TOKENS // (3 * emitted), running.TURN_TOKENS // (3 * emitted)
    assert ways[: shared + turns] == [True] * shared + [False] * turns
    assert ways[shared + turns : shared + turns + 20] == [pays] * 20
    begun = [at for at in range(1, len(ways)) if ways[at] != pays and ways[at - 1] == pays]
    apart = [later - earlier for earlier, later in pairwise(begun)]
    assert all(later > earlier - 3 for earlier, later in pairwise(apart)) and apart[1] > 1.5 * apart[0]
    assert 0.9 < max(apart) * (1 if pays else 3) / running.MOST_PASSES < 1.1


@pytest.mark.parametrize(("seconds", "kept"), [(1.9, True), (2.1, False)])
def test_drafts_stay_in_shared_passes_where_these_take_less_time_a_token_than_plain_ones(three, seconds, kept):
    """Two tokens of each against one of each in a second; asked anew at times, and for every number of jobs."""
    sharing, asked = three
    sharing.choose(asked, 1 << 60)
    tried = []
    for _ in range(running.RENEWED_PASSES + 1):
        drafts = sharing._batch.takes_drafts
        for one in asked:
            one.drafted, one.emitted = drafts, 1 + drafts
        sharing.observe(asked, seconds if drafts else 1.0)
        tried.append(drafts)
    with_drafts, without = running.COMPARED_TOKENS // 6, running.COMPARED_TOKENS // 3
    begin = with_drafts + without
    assert tried == [True] * with_drafts + [False] * without + [kept] * (running.RENEWED_PASSES + 1 - begin)
    assert sharing._batch.takes_drafts
    for _ in range(begin):
        sharing.observe(asked, 1.0)
    sharing.observe(asked[:2], 1.0)
    assert sharing._batch.takes_drafts


def test_a_network_whose_shared_passes_can_hold_no_drafts_is_given_none(three):
    sharing, asked = three
    sharing.proof = replace(sharing.proof, takes_drafts=False)
    sharing.choose(asked, 1 << 60)
    assert go_on(sharing, asked, 1.0, drafts=False)
    assert not sharing._batch.takes_drafts


def test_drafts_that_are_tried_and_lose_are_no_reason_to_take_turns(three):
    sharing, asked = three
    while sharing._batch.takes_drafts:
        assert go_on(sharing, asked, 30.0, drafts=True)
    ways = [go_on(sharing, asked, 2.9) for _ in range(100)]
    assert ways.count(False) == running.TURN_TOKENS // 3 and ways[-1]


def test_while_drafts_lose_they_are_tried_half_as_often(three):
    sharing, asked = three
    tried = []
    for _ in range(8 * running.RENEWED_PASSES):
        tried.append(sharing._batch.takes_drafts)
        for one in asked:
            one.drafted = tried[-1]
        sharing.observe(asked, 2.0 if tried[-1] else 1.0)
    begun = [at for at in range(len(tried)) if tried[at] and not (at and tried[at - 1])]
    apart = [later - earlier for earlier, later in pairwise(begun)]
    assert apart[1:] == [2 * running.RENEWED_PASSES, 4 * running.RENEWED_PASSES]


def test_of_a_shared_pass_each_is_charged_its_part_beside_one_who_takes_turns():
    """Charged with all of it, two who share would have half of what the third has."""
    now, clock = iter([0.0, 6.0]), FairClock()
    jobs = [SimpleNamespace(had_seconds=0.0, kept=SimpleNamespace(watch=nullcontext())) for _ in range(3)]
    sharing = SimpleNamespace(answer=lambda jobs: [], observe=lambda jobs, seconds: None)
    Scheduler._share(SimpleNamespace(_jobs=jobs, _fair=clock, _clock=lambda: next(now)), sharing, jobs[:2])
    assert [job.had_seconds for job in jobs] == [3.0, 3.0, 0.0] and clock.now == 2.0
