"""Jobs share the time of the thread that runs them, on a device whose clock is its own."""

from itertools import count, pairwise

import pytest

from fakes.device import FakeDevice
from fakes.serving import Client, ids, job, tiny_loaded
from specdec_cli.apps.serve.running import FIRST_CHUNK_TOKENS
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.events import Finish, Reading, RoundDone
from specdec_cli.engine import device

pytestmark = pytest.mark.slow

CHUNK_TOKENS, STEP_SECONDS, TOKEN_SECONDS = 512, 0.05, 0.0055


@pytest.fixture
def timed(tmp_path, monkeypatch, request):
    """(desk, clock): a chunk takes 2.8 s and a plain step 50 ms. The parameter: how many jobs run at once."""
    monkeypatch.setattr(device, "prefill_tokens", lambda: CHUNK_TOKENS)
    fake, pair = FakeDevice().install(monkeypatch, ahead=False), tiny_loaded(tmp_path, draft=False)
    fake.drive(pair.first.target, lambda rows: STEP_SECONDS if rows < 8 else rows * TOKEN_SECONDS, 1)
    desk = Scheduler(lambda: pair, SchedulerOptions(getattr(request, "param", 2), cache_bytes=1 << 30), fake.clock)
    yield desk, fake.clock
    desk.close()


def beside(timed, first, then, started):
    """(seconds of `then`, which comes at the first `started` event of `first`, the clock at each event of both)."""
    desk, clock = timed
    seen, later = [], []

    def note(client, event):
        seen.append((client.name, type(event), clock()))

    def begin(client, event):
        note(client, event)
        if isinstance(event, started) and not later:
            seen.append(("came", None, clock()))
            later.append(Named(desk, then, note, "then"))

    running = Named(desk, first, begin, "first")
    while not later or not later[0].done.wait(0.01):
        assert not (running.done.is_set() and not later)
    running.ticket.cancel()
    running.wait()
    came = next(at for name, _, at in seen if name == "came")
    end = next(at for name, kind, at in seen if name == "then" and kind is Finish)
    return end - came, seen


class Named(Client):
    def __init__(self, desk, job, on_event, name):
        self.name = name
        super().__init__(desk, job, on_event)


def alone(timed, asked):
    desk, clock = timed
    began = clock()
    Client(desk, asked).wait()
    return clock() - began


@pytest.mark.parametrize("tokens", [10, 130])
def test_an_answer_beside_a_long_prefill_takes_its_time_and_as_much_again_and_one_chunk(timed, tokens):
    """The bug: one token a chunk. Ten tokens were over when the prefill was."""
    by_itself = min(alone(timed, job(ids(20, 5 + number), tokens, k=0)) for number in range(2))
    took, _ = beside(timed, job(ids(2000), 10, k=0), job(ids(20, 9), tokens, k=0), Reading)
    print(f"{tokens} tokens: {by_itself:.2f} s alone, {took:.2f} s beside a prefill of 2,000 tokens")
    assert took <= 3 * by_itself + CHUNK_TOKENS * TOKEN_SECONDS
    assert tokens == 10 or took >= 1.3 * by_itself, "the prefill got no time"


def test_a_prompt_that_comes_to_a_running_answer_is_read_in_short_chunks_and_half_of_the_time(timed):
    _, seen = beside(timed, job(ids(30), 4000, k=0), job(ids(2000, 3), 4, k=0), RoundDone)
    came = next(at for name, _, at in seen if name == "came")
    first = next(at for name, kind, at in seen if name == "then" and kind is RoundDone)
    rounds = [at for name, kind, at in seen if name == "first" and kind is RoundDone and came <= at <= first]
    longest = max(after - before for before, after in pairwise(rounds))
    reading = 2000 * TOKEN_SECONDS
    assert longest < FIRST_CHUNK_TOKENS * TOKEN_SECONDS + 3 * STEP_SECONDS, (
        f"the answer stood still for {longest:.2f} s"
    )
    assert 1.7 * reading < first - came < 2.4 * reading
    assert 0.4 < len(rounds) * STEP_SECONDS / (first - came) < 0.6


def test_a_job_whose_client_left_ends_at_once_though_others_are_owed_time(timed):
    desk, clock = timed
    left = []

    def leave(client, event):
        if isinstance(event, Reading) and not left:
            left.append(clock())
            client.ticket.cancel()
        if isinstance(event, Finish):
            left.append(clock())

    slow = Client(desk, job(ids(30), 60, k=0))
    Client(desk, job(ids(2000, 4), 4, k=0), leave).wait()
    assert left[1] - left[0] < 3 * STEP_SECONDS
    slow.wait()


@pytest.mark.parametrize("timed, parallel", [(4, 4)], indirect=["timed"])
def test_a_chain_of_short_answers_leaves_a_long_prompt_its_part(timed, parallel):
    """The bug: beside eight clients of two tokens a long job had 0.25 rounds a second, and alone 17 to 38."""
    desk, clock = timed
    chain, numbers = [], count(9)

    def begin(client, event):
        if isinstance(event, Reading) and not chain:
            chain.append(clock())
            for _ in range(7):
                again(client, Finish)
        if isinstance(event, RoundDone):
            chain.append(clock())

    def again(client, event):
        if event is Finish or (isinstance(event, Finish) and len(chain) == 1):
            Client(desk, job(ids(6, next(numbers)), 2, k=0), again)

    Client(desk, job(ids(2000), 1, k=0), begin).wait()
    part = (2000 - CHUNK_TOKENS) * TOKEN_SECONDS / (chain[1] - chain[0])
    assert part > 0.5 / parallel, f"{part:.2f} of the time for one of {parallel}"
