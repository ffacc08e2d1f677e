"""Jobs from many threads, one thread that runs them: turns, cancelling, failures, memory of what was read."""

import random
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fakes.serving import TURNS, Client, alone, answer, desk_of, ids, job, tiny_loaded
from specdec_cli.apps.serve import scheduler
from specdec_cli.apps.serve.conversations import Conversations
from specdec_cli.apps.serve.job import Busy, TooLarge, TooLong
from specdec_cli.apps.serve.running import job_bytes
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.errors import NotAvailable, SpecdecError
from specdec_cli.core.events import Failure, Finish, Prefill, Reading, RoundDone, Start
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.session.capacity import capacity_of


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_loaded(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def desk(pair):
    desk = desk_of(pair)
    yield desk
    desk.close()


def test_an_answer_is_that_of_a_session_alone(pair, desk):
    for request in (job(ids(40)), job(ids(40), seed=7, sampling={"temperature": 0.9})):
        client = answer(desk, request)
        assert [type(event) for event in client.events[:3]] == [Start, Prefill, RoundDone]
        assert client.end.tokens == alone(pair, request)


def test_the_machine_is_kept_awake_while_somebody_waits_for_an_answer_and_no_longer(pair, monkeypatch):
    states = []

    @contextmanager
    def watched():
        states.append("awake")
        yield
        states.append("free")

    monkeypatch.setattr(scheduler, "awake", watched)
    desk = desk_of(pair)
    client = Client(desk, job(ids(40)), lambda client, event: states.append("event")).wait()
    desk.close()
    assert [*dict.fromkeys(states)] == ["awake", "event", "free"] and states[-1] == "free"
    assert states.count("event") == len(client.events)


def test_a_thread_that_dies_ends_its_clients_at_once_with_the_error_and_tells_whoever_comes(pair, monkeypatch):
    """Where `caffeinate` could not be started, the thread was gone, and every client waited for its own timeout."""

    all_came = threading.Event()

    def broken():
        all_came.wait()
        raise AssertionError("no programs here")

    desk = desk_of(pair)
    monkeypatch.setattr(scheduler, "awake", broken)
    clients = [Client(desk, job(ids(40, seed))) for seed in range(3)]
    all_came.set()
    ends = [client.wait().end for client in clients]
    assert [type(end) for end in ends] == [Failure] * 3 and "no programs here" in ends[-1].message
    assert desk.status().jobs == 3 and not desk.status().running
    with pytest.raises(SpecdecError, match="no programs here"):
        Client(desk, job(ids(40)))
    desk.close()


def storm(pair, desk, jobs, seed, cancel_share=0.3):
    """8 threads hand in `jobs`, in any order; some are cancelled after some events. The clients, by job."""
    rng, found, lock = random.Random(seed), {}, threading.Lock()
    order = [(number, rng.random() < cancel_share, rng.randrange(1, 8)) for number in range(len(jobs))]
    rng.shuffle(order)

    def submitter(mine):
        for number, cancels, after in mine:

            def cancel(client, event, after=after, cancels=cancels):
                if cancels and len(client.events) >= after and client.ticket:
                    client.ticket.cancel()

            client = Client(desk, jobs[number], cancel)
            with lock:
                found[number] = client
            if rng.random() < 0.5:
                client.wait()

    threads = [threading.Thread(target=submitter, args=(order[at::8],)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number].wait() for number in range(len(jobs))]


def storm_jobs(count, seed):
    rng, jobs = random.Random(seed), []
    texts = [ids(60, 1), ids(60, 2), ids(30, 3)]
    for number in range(count):
        prompt = (*rng.choice(texts)[: rng.randrange(20, 60)], *ids(rng.randrange(1, 30), number))
        sampled = {"seed": number, "sampling": {"temperature": 0.9}} if rng.random() < 0.5 else {}
        k = rng.choice([0, 3, "auto"])
        jobs.append(job(prompt, rng.randrange(1, 24), (min(19, len(prompt)),), k=k, **sampled))
    return jobs


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param("plain", 1, marks=pytest.mark.slow),
        *(pytest.param(kind, seed, marks=pytest.mark.full) for kind in ("window", "recurrent") for seed in (1, 2, 3)),
    ],
)
def test_eight_threads_at_random_get_the_answers_of_sessions_alone(tmp_path, kind, seed):
    """Greedy and coupled, with cancellations among them: a cancelled answer is a beginning of the whole one."""
    pair = tiny_loaded(tmp_path, kind)
    jobs = storm_jobs(24, seed)
    desk = desk_of(pair, parallel=3, queue=64, slots=4)
    clients = storm(pair, desk, jobs, seed)
    desk.close()
    whole = 0
    for one, client in zip(jobs, clients, strict=True):
        assert isinstance(client.end, Finish), client.end
        expected = alone(pair, one)
        assert client.end.tokens == expected[: len(client.end.tokens)]
        if client.end.reason != "interrupted":
            assert client.end.tokens == expected
            whole += 1
    assert len(jobs) > whole >= len(jobs) // 3
    assert any(client.prefill.cached_tokens for client in clients if len(client.events) > 2)


def passes_of(pair, monkeypatch):
    """How often the target is fed from now on."""
    count, forward = [], pair.first.target.network.forward

    def counted(tokens, caches):
        count.append(tokens.size)
        return forward(tokens, caches)

    monkeypatch.setattr(pair.first.target.network, "forward", counted)
    return count


def test_a_cancelled_answer_costs_no_pass_after_the_round_it_was_in(pair, desk, monkeypatch):
    passes, seen = passes_of(pair, monkeypatch), []

    def cancel(client, event):
        if len(client.tokens) >= 20 and not seen:
            seen.append(len(passes))
            client.ticket.cancel()

    client = Client(desk, job(ids(30), 4000, k=3), cancel).wait()
    assert (client.end.reason, len(client.tokens) < 30) == ("interrupted", True)
    assert len(passes) - seen[0] <= 1  # what was queued ahead
    time.sleep(0.05)
    assert len(passes) - seen[0] <= 1
    assert answer(desk, job(ids(30))).end.tokens == alone(pair, job(ids(30)))


def test_a_client_that_stays_costs_passes_to_the_end(pair, desk, monkeypatch):
    """Negative control of the test above: its count counts."""
    passes = passes_of(pair, monkeypatch)
    answer(desk, job(ids(30), 100, k=3))
    assert len(passes) > 25


def test_a_prompt_that_nobody_waits_for_is_not_read_to_its_end(pair, desk, monkeypatch):
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 32)
    passes, seen = passes_of(pair, monkeypatch), []

    def cancel(client, event):
        if isinstance(event, Reading) and not seen:
            seen.append(len(passes))
            client.ticket.cancel()

    client = Client(desk, job(ids(1000), 10), cancel).wait()
    assert client.end.reason == "interrupted" and len(passes) - seen[0] <= 1
    again = answer(desk, job(ids(1000), 10))
    assert again.prefill.cached_tokens >= 32
    assert again.end.tokens == alone(pair, job(ids(1000), 10))


def test_beyond_the_bound_a_job_is_refused_and_told_when_to_come_back(pair):
    desk = desk_of(pair, parallel=1, queue=2)
    first = Client(desk, job(ids(30), 4000))
    while len(desk.status().running) < 1:
        time.sleep(0.001)
    waiting = [Client(desk, job(ids(20, n), 2)) for n in (1, 2)]
    with pytest.raises(Busy, match="2 requests wait already, and 2 may") as refused:
        Client(desk, job(ids(20), 2))
    assert 1 <= refused.value.retry_seconds <= 60
    status = desk.status()
    assert ([one.job for one in status.running], len(status.waiting)) == ([first.ticket.job], 2)
    waiting[0].ticket.cancel()
    first.ticket.cancel()
    assert waiting[0].wait().end.reason == "interrupted" and len(waiting[0].events) == 1
    assert waiting[1].wait().end.reason == "length"
    desk.close()


def test_a_job_that_fails_says_so_in_two_lines_and_the_next_one_runs(pair, desk, monkeypatch):
    def broken(tokens, caches):
        raise ZeroDivisionError("in the network")

    with monkeypatch.context() as patch:
        patch.setattr(pair.first.target.network, "forward", broken)
        end = answer(desk, job(ids(30))).end
    assert end == Failure(
        "the request failed: in the network", "try again; specdec doctor --selftest checks the device", 1
    )
    refused = answer(desk, job(ids(30), logit_bias=((9999, 1.0),))).end
    assert (refused.exit_code, "9999" in refused.message) == (2, True)
    assert answer(desk, job(ids(30))).end.tokens == alone(pair, job(ids(30)))
    assert desk.status().jobs == 3


def test_a_job_for_which_no_room_can_be_made_leaves_no_slot_in_use(pair, desk, monkeypatch):
    """The bug: its slot stayed busy for good, and could neither be used nor dropped."""

    fits, fit = iter([True, False]), Conversations.fit

    def broken(self, budget_bytes):
        if not next(fits, True):
            raise ZeroDivisionError("while making room")
        fit(self, budget_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(Conversations, "fit", broken)
        assert "while making room" in answer(desk, job(ids(30))).end.message
    assert not desk.status().conversations
    assert answer(desk, job(ids(30))).end.tokens == alone(pair, job(ids(30)))


def test_a_client_that_raises_is_as_one_that_left(pair, desk, monkeypatch):
    passes = passes_of(pair, monkeypatch)
    desk.submit(job(ids(30), 4000), lambda event: 1 / 0)
    while desk.status().jobs < 1:
        time.sleep(0.001)
    assert len(passes) <= 3
    assert answer(desk, job(ids(30))).end.reason == "length"


def test_what_exceeds_the_context_or_the_memory_is_refused_before_anything_is_allocated(tmp_path):
    pair = tiny_loaded(tmp_path, context_limit=128)
    desk = desk_of(pair)
    with pytest.raises(TooLong, match=r"prompt is too long: 200 tokens > 127 maximum"):
        desk.submit(job(ids(200)), print)
    assert answer(desk, job(ids(120), 1000)).end.reason == "length"
    weights = desk._capacity.weight_bytes
    desk.close()
    small = desk_of(pair, usable_bytes=int(weights / 0.92) + 1000)
    with pytest.raises(TooLarge, match=r"models and caches need .* at 128 tokens of context; .* are usable") as refused:
        small.submit(job(ids(120)), print)
    assert refused.value.hint and not small.status().running and not small.status().conversations
    small.close()


def test_an_idle_server_gives_freed_buffers_back_while_its_models_stay(pair, monkeypatch):
    given, clear = threading.Event(), []
    monkeypatch.setattr(scheduler, "IDLE_SECONDS", 0.05)
    desk = desk_of(pair)
    monkeypatch.setattr(scheduler, "clear_cache", lambda: clear.append(desk.status().loaded) or given.set())
    answer(desk, job(ids(30)))
    assert given.wait(10) and clear[0]
    desk.close()


def test_idle_models_are_dropped_and_come_back(tmp_path):
    loads = []

    def load():
        loads.append(threading.current_thread())
        return tiny_loaded(tmp_path / str(len(loads)))

    desk = Scheduler(load, SchedulerOptions(idle_seconds=0.05, cache_bytes=1 << 30))
    expected = answer(desk, job(ids(30))).end.tokens
    while desk.status().loaded:
        time.sleep(0.01)
    assert desk.status().conversations == 0
    assert answer(desk, job(ids(30))).end.tokens == expected
    assert len(loads) > 1 and set(loads) == {desk._thread}
    desk.close()


def test_models_go_once_the_last_job_that_asked_for_it_is_over_and_none_is_loaded_to_go(tmp_path):
    loads = []

    def load():
        loads.append(True)
        return tiny_loaded(tmp_path / str(len(loads)))

    def gone():
        while desk.status().loaded:
            time.sleep(0.01)
        return len(loads)

    desk = Scheduler(load, SchedulerOptions(idle_seconds=None, cache_bytes=1 << 30))
    only = replace(job(ids(1), tokens=0), unloads=True)
    answer(desk, replace(only, pair="another"))
    assert answer(desk, job(ids(30))).end.tokens and desk.status().loaded
    expected = answer(desk, replace(job(ids(30)), unloads=True)).end.tokens
    assert gone() == 1 and answer(desk, only).end.reason == "stop" and gone() == 1
    assert answer(desk, job(ids(30))).end.tokens == expected and len(loads) == 2
    time.sleep(0.05)
    assert desk.status().loaded  # a later request keeps them
    began = Client(desk, job(ids(30), tokens=20))
    assert answer(desk, only).end.tokens == () and began.wait().end.reason == "length" and gone() == 2
    desk.close()


def test_a_pair_that_cannot_be_loaded_is_an_error_at_once_and_later_one_of_the_job(tmp_path):
    def fail():
        raise NotAvailable("gone", "pull it")

    with pytest.raises(NotAvailable, match="gone"):
        Scheduler(fail)
    answers = iter([lambda: tiny_loaded(tmp_path), fail, lambda: tiny_loaded(tmp_path)])
    desk = Scheduler(lambda: next(answers)(), SchedulerOptions(idle_seconds=0.02, cache_bytes=1 << 30))
    while desk.status().loaded:
        time.sleep(0.01)
    assert answer(desk, job(ids(9))).end == Failure("gone", "pull it", 3)
    assert answer(desk, job(ids(9))).end.reason == "length"
    desk.close()


def test_a_server_that_does_not_start_leaves_no_thread(pair):
    """`serve` that refused its pair was aborted in five of five: the process exited while mlx's thread still ran. So
    with Ctrl-C while models are loaded."""

    def refuses():
        raise NotAvailable("gone", "pull it")

    def interrupted():
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.05)
        return pair

    before = {*threading.enumerate()}
    for load, error in ((refuses, NotAvailable), (interrupted, KeyboardInterrupt)):
        with pytest.raises(error):
            Scheduler(load)
        assert {*threading.enumerate()} <= before


def test_closing_ends_every_job_and_the_thread(pair):
    desk = desk_of(pair, parallel=1)
    clients = [Client(desk, job(ids(30, n), 4000)) for n in range(3)]
    while not clients[0].tokens:
        time.sleep(0.001)
    desk.close()
    assert [client.wait().end.reason for client in clients] == ["interrupted"] * 3
    assert not desk._thread.is_alive()
    with pytest.raises(Busy, match="stopping"):
        desk.submit(job(ids(9)), print)


def test_rounds_are_not_billed_for_another_jobs_turns(pair, desk):
    """Costs, and so K, are learned from a round's seconds: beside another job they are those of the round alone."""
    both = [Client(desk, job(ids(30, n), 60, **TURNS)) for n in (1, 2)]
    began = time.perf_counter()
    ends = [client.wait().end for client in both]
    wall = time.perf_counter() - began
    assert sum(end.stats["decode_seconds"] for end in ends) <= wall * 1.05


def test_the_same_prompt_twice_at_once_is_read_once(pair, monkeypatch):
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 64)
    desk, prompt = desk_of(pair), ids(300, 3)
    clients = [Client(desk, job(prompt, 8)), Client(desk, replace(job(prompt, 8), endpoint="other"))]
    read = [client.wait().read_tokens for client in clients]
    assert sorted(read) == [1, 300]
    assert clients[0].end.tokens == clients[1].end.tokens
    desk.close()


def test_the_totals_are_the_sums_of_all_jobs(pair, desk):
    clients = [answer(desk, job(ids(30, n), 12)) for n in range(3)]
    status, stats = desk.status(), [client.end.stats for client in clients]
    totals, rounds = status.totals, status.totals.rounds
    assert status.jobs == 3 and totals.prompt_tokens == 90 and status.conversations == 3 and status.cache_bytes > 0
    assert rounds.emitted_tokens == sum(s["emitted_tokens"] for s in stats)
    assert rounds.draft_n == sum(s["draft_n"] for s in stats) == sum(rounds.drafted_at)
    assert rounds.draft_n_accepted == sum(s["draft_n_accepted"] for s in stats) == sum(rounds.accepted_at)


def test_a_prompt_of_exactly_the_context_is_refused_and_one_token_less_is_answered(tmp_path):
    desk = desk_of(tiny_loaded(tmp_path, context_limit=32))
    with pytest.raises(TooLong, match="prompt is too long: 32 tokens > 31 maximum"):
        desk.submit(job(ids(32)), print)
    assert len(answer(desk, job(ids(31))).end.tokens) == 1
    desk.close()


def test_after_a_failure_nothing_of_the_conversation_is_gone_on_with(pair, desk, monkeypatch):
    """What a pass that failed left in its caches, nobody knows."""
    outputs, passes = CachedModel.outputs, []

    def failing(self, *arguments, **more):
        passes.append(self)
        if len(passes) == 9:
            raise ValueError("nobody foresaw this")  # after a failure of the device the session itself forgets
        return outputs(self, *arguments, **more)

    with monkeypatch.context() as broken:
        broken.setattr(CachedModel, "outputs", failing)
        assert isinstance(answer(desk, job(ids(40), 30)).end, Failure)
    assert [one.length for one in desk._conversations] in ([], [0])
    assert answer(desk, job(ids(40), 5)).read_tokens == 40


def test_two_that_fit_only_one_after_the_other_run_one_after_the_other(pair):
    capacity, asked, seen = capacity_of(pair), job(ids(60), 12), []
    need = capacity.weight_bytes + job_bytes(asked, capacity)
    for room, most in ((need * 3, 2), (need + job_bytes(asked, capacity) - 1, 1)):
        desk, later = desk_of(pair, parallel=2, usable_bytes=int(room / HEADROOM) + 1), []

        def note(client, event, desk=desk, later=later):
            later.append(Client(desk, job(ids(60, 9), 12), note)) if not later else None
            seen.append(len(desk.status().running))

        Client(desk, asked, note).wait()
        later[0].wait()
        desk.close()
        assert max(seen) == most
        seen.clear()
