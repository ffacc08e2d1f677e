"""Jobs from many threads, one thread that runs them: turns, cancelling, failures, memory of what was read."""

import gc
import signal
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fakes.serving import TURNS, Client, alone, answer, ids, job, tiny_loaded
from specdec_cli.apps.serve import scheduler
from specdec_cli.apps.serve.conversations import Conversations
from specdec_cli.apps.serve.job import Busy, JobHandle, Queue, TooLong
from specdec_cli.apps.serve.scheduler import Scheduler
from specdec_cli.core.errors import DoesNotFit, NotAvailable, SpecdecError
from specdec_cli.core.events import Failure, Reading
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.limits import HEADROOM


@pytest.fixture
def pair(tiny):
    return tiny


@pytest.fixture
def desk(pair, open_desk):
    return open_desk(pair)


def test_the_machine_may_sleep_once_nobody_has_asked_for_a_while(pair, open_desk, monkeypatch):
    """A process was started for each answer, and waited for at its end."""
    states, free = [], threading.Event()

    @contextmanager
    def watched():
        states.append("awake")
        yield
        free.set()

    monkeypatch.setattr(scheduler, "awake", watched)
    desk = open_desk(pair)
    for seed in range(3):
        answer(desk, job(ids(40, seed)))
    assert states == ["awake"] and not free.is_set()
    monkeypatch.setattr(scheduler, "IDLE_SECONDS", 0.05)
    for times in (1, 2):
        answer(desk, job(ids(40)))
        assert free.wait(10) and states == ["awake"] * times
        free.clear()


def test_a_thread_that_dies_ends_its_clients_at_once_with_the_error_and_tells_whoever_comes(desk, monkeypatch):
    """Where `caffeinate` could not be started, the thread was gone, and every client waited for its own timeout."""

    all_came = threading.Event()

    def broken():
        all_came.wait()
        raise AssertionError("no programs here")

    monkeypatch.setattr(scheduler, "awake", broken)
    clients = [Client(desk, job(ids(40, seed))) for seed in range(3)]
    all_came.set()
    ends = [client.wait().end for client in clients]
    assert [type(end) for end in ends] == [Failure] * 3 and "no programs here" in ends[-1].message
    assert desk.status().jobs == 3 and not desk.status().running
    with pytest.raises(SpecdecError):
        Client(desk, job(ids(40)))


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
    assert seen[0] >= 5  # the count counts
    assert len(passes) - seen[0] <= 1  # what was queued ahead
    time.sleep(0.05)
    assert len(passes) - seen[0] <= 1
    assert answer(desk, job(ids(30))).end.tokens == alone(pair, job(ids(30)))


def test_a_prompt_that_nobody_waits_for_is_not_read_to_its_end(pair, desk, monkeypatch, device_says):
    device_says(prefill_tokens=32)
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


def test_beyond_the_bound_a_job_is_refused_and_told_when_to_come_back(pair, open_desk):
    desk = open_desk(pair, parallel=1, queue=2)
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


def test_what_exceeds_the_memory_is_refused_before_anything_is_allocated(tmp_path, open_desk):
    pair = tiny_loaded(tmp_path, context_limit=128)
    assert answer(open_desk(pair), job(ids(120), 1000)).end.reason == "length"
    fit = replace(pair.fit, usable_bytes=int(pair.fit.weight_bytes / HEADROOM) + 1000)
    small = open_desk(replace(pair, fit=fit))
    with pytest.raises(
        DoesNotFit, match=r"models and caches need .* at 128 tokens of context; .* are usable"
    ) as refused:
        small.submit(job(ids(120)), print)
    assert refused.value.hint and not small.status().running and not small.status().conversations


def test_a_pair_that_was_loaded_though_it_does_not_fit_answers(tmp_path, open_desk):
    """--force loaded it, and every request was refused for the memory; the context bounds it all the same."""
    pair = tiny_loaded(tmp_path, context_limit=128)
    desk = open_desk(replace(pair, fit=replace(pair.fit, usable_bytes=pair.fit.weight_bytes // 2)))
    clients = [Client(desk, job(ids(30, seed))) for seed in range(2)]
    assert [client.wait().end.tokens for client in clients] == [alone(pair, client.job) for client in clients]
    with pytest.raises(TooLong):
        desk.submit(job(ids(128)), print)


def test_a_prompt_of_exactly_the_context_is_refused_and_one_token_less_is_answered(tmp_path, open_desk):
    desk = open_desk(tiny_loaded(tmp_path, context_limit=32))
    with pytest.raises(TooLong, match="prompt is too long: 32 tokens > 31 maximum"):
        desk.submit(job(ids(32)), print)
    assert len(answer(desk, job(ids(31))).end.tokens) == 1


def test_an_idle_server_gives_freed_buffers_back_while_its_models_stay(desk, monkeypatch):
    given, clear = threading.Event(), []
    monkeypatch.setattr(scheduler, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(scheduler, "clear_cache", lambda: clear.append(desk.status().loaded) or given.set())
    answer(desk, job(ids(30)))
    assert given.wait(10) and clear[0]


class Loads(list):
    """Loads a pair anew each time; the threads in which it did, and what it raises instead in turn."""

    def __init__(self, folder, *errors):
        self.folder, self.errors = folder, [*errors]

    def __call__(self):
        self.append(threading.current_thread())
        if self.errors and (error := self.errors.pop(0)):
            raise error
        return tiny_loaded(self.folder / str(len(self)))


def gone(desk):
    """Waits until the models are."""
    while desk.status().loaded:
        time.sleep(0.01)


def test_idle_models_are_dropped_and_come_back(tmp_path, open_desk):
    desk = open_desk(loads := Loads(tmp_path), parallel=1, idle_seconds=0.05)
    expected = answer(desk, job(ids(30))).end.tokens
    gone(desk)
    assert desk.status().conversations == 0
    assert answer(desk, job(ids(30))).end.tokens == expected
    assert len(loads) > 1 and len({*loads} - {threading.main_thread()}) == 1


def test_models_go_once_the_last_job_that_asked_for_it_is_over_and_none_is_loaded_to_go(tmp_path, open_desk):
    desk = open_desk(loads := Loads(tmp_path), idle_seconds=None)
    only = replace(job(ids(1), tokens=0), unloads=True)
    answer(desk, replace(only, pair="another"))
    assert answer(desk, job(ids(30))).end.tokens and desk.status().loaded
    expected = answer(desk, replace(job(ids(30)), unloads=True)).end.tokens
    gone(desk)
    assert answer(desk, only).end.reason == "stop" and not desk.status().loaded and len(loads) == 1
    assert answer(desk, job(ids(30))).end.tokens == expected and len(loads) == 2
    time.sleep(0.05)
    assert desk.status().loaded and desk.status().idle_seconds is None  # a later request keeps them
    began = Client(desk, job(ids(30), tokens=20))
    assert answer(desk, only).end.tokens == () and began.wait().end.reason == "length"
    gone(desk)
    assert len(loads) == 2 and desk.status().idle_seconds == 0


def test_a_pair_that_cannot_be_loaded_is_an_error_at_once_and_later_one_of_the_job(tmp_path, open_desk):
    error = NotAvailable("gone", "pull it")
    with pytest.raises(NotAvailable):
        open_desk(Loads(tmp_path, error))
    desk = open_desk(Loads(tmp_path, None, error), parallel=1, idle_seconds=0.02)
    gone(desk)
    assert answer(desk, job(ids(9))).end == Failure("gone", "pull it", 3)
    assert answer(desk, job(ids(9))).end.reason == "length"


def test_a_server_that_does_not_start_leaves_no_thread(pair):
    """`serve` that refused its pair was aborted in five of five: the process exited while mlx's thread still ran. So
    with Ctrl-C while models are loaded."""

    def interrupted():
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.05)
        return pair

    before = {*threading.enumerate()}
    refused = Loads(None, NotAvailable("gone", "pull it"))
    for load, error in ((refused, NotAvailable), (interrupted, KeyboardInterrupt)):
        with pytest.raises(error):
            Scheduler(lambda name, load=load: load())
        assert {*threading.enumerate()} <= before


def test_closing_ends_every_job_and_the_thread(pair, open_desk):
    threads, desk = {*threading.enumerate()}, open_desk(pair, parallel=1)
    clients = [Client(desk, job(ids(30, n), 4000)) for n in range(3)]
    while not clients[0].tokens:
        time.sleep(0.001)
    desk.close()
    assert [client.wait().end.reason for client in clients] == ["interrupted"] * 3
    assert {*threading.enumerate()} <= threads
    with pytest.raises(Busy):
        desk.submit(job(ids(9)), print)


def test_rounds_are_not_billed_for_another_jobs_turns(pair, desk):
    """Costs, and so K, are learned from a round's seconds: beside another job they are those of the round alone."""
    both = [Client(desk, job(ids(30, n), 30, **TURNS)) for n in (1, 2)]
    began = time.perf_counter()
    ends = [client.wait().end for client in both]
    wall = time.perf_counter() - began
    assert sum(end.stats["decode_seconds"] for end in ends) <= wall * 1.05


def test_the_same_prompt_twice_at_once_is_read_once(desk, device_says):
    device_says(prefill_tokens=64)
    prompt = ids(300, 3)
    clients = [Client(desk, job(prompt, 8)), Client(desk, replace(job(prompt, 8), endpoint="other"))]
    read = [client.wait().read_tokens for client in clients]
    assert sorted(read) == [1, 300]
    assert clients[0].end.tokens == clients[1].end.tokens


def test_the_totals_are_the_sums_of_all_jobs(pair, desk):
    clients = [answer(desk, job(ids(30, n), 12)) for n in range(3)]
    status, stats = desk.status(), [client.end.stats for client in clients]
    totals, rounds = status.totals, status.totals.rounds
    assert status.jobs == 3 and totals.prompt_tokens == 90 and status.conversations == 3 and status.cache_bytes > 0
    assert rounds.emitted_tokens == sum(s["emitted_tokens"] for s in stats)
    assert rounds.draft_n == sum(s["draft_n"] for s in stats) == sum(rounds.drafted_at)
    assert rounds.draft_n_accepted == sum(s["draft_n_accepted"] for s in stats) == sum(rounds.accepted_at)


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
    assert answer(desk, job(ids(40), 5)).read_tokens == 40


def test_two_that_fit_only_one_after_the_other_run_one_after_the_other(pair, open_desk):
    asked, seen = job(ids(60), 12), []
    one, two = (pair.fit.at(*[72] * jobs).peak_bytes for jobs in (1, 2))
    for room, most in ((one * 3, 2), (two - 1, 1)):
        fit, later = replace(pair.fit, usable_bytes=int(room / HEADROOM) + 1), []
        desk = open_desk(replace(pair, fit=fit), parallel=2)

        def note(client, event, desk=desk, later=later):
            later.append(Client(desk, job(ids(60, 9), 12), note)) if not later else None
            seen.append(len(desk.status().running))

        Client(desk, asked, note).wait()
        later[0].wait()
        assert max(seen) == most
        seen.clear()


# One desk and several pairs: one is loaded at a time, after the answers that run, and all get their turn.
KINDS = {"": "plain", "b": "recurrent", "c": "window"}


class Shelf:
    """Loads pairs by name; `loads` are the names in order, `most` how many were ever in memory at once."""

    def __init__(self, folder):
        self.folder, self.loads, self.threads, self.most, self._here = folder, [], set(), 0, weakref.WeakSet()
        self.broken, self.ready = set(), {}

    def load(self, name=""):
        self.loads.append(name)
        self.threads.add(threading.current_thread())
        if name in self.broken:
            raise NotAvailable(f"{name} is gone", f"specdec pull {name}")
        pair = self.ready.get(name) or tiny_loaded(self.folder / str(len(self.loads)), KINDS[name])
        self._here.add(pair.tokenizer)
        gc.collect()
        self.most = max(self.most, len(self._here))
        return pair


@pytest.fixture
def shelf(tmp_path, open_desk):
    shelf = Shelf(tmp_path)
    shelf.desk = lambda parallel=1: open_desk(shelf.load, switch=shelf.load, parallel=parallel)
    return shelf


def of(pair, tokens=12, seed=0, **more):
    return replace(job(ids(30, seed), tokens, **more), pair=pair)


@pytest.mark.slow
def test_each_job_is_answered_by_its_pair_and_one_is_in_memory_at_a_time(shelf, tmp_path):
    desk = shelf.desk()
    for name in ("", "b", "c", "b", ""):
        own = tiny_loaded(tmp_path / f"own{len(shelf.loads)}", KINDS[name])
        assert answer(desk, of(name)).end.tokens == alone(own, of(name))
        assert desk.status().pair == name
    assert shelf.loads == ["", "b", "c", "b", ""] and len(shelf.threads) == 1
    assert shelf.most == 1


@pytest.mark.slow
def test_an_answer_that_runs_ends_before_another_pair_takes_its_place(shelf):
    desk = shelf.desk(parallel=2)
    later, waited, ended = [], [], []

    def begin(client, event):
        if client.tokens and not later:
            later.append(Client(desk, of("b"), lambda other, event: ended.append(client.done.is_set())))
            waited.append(len(desk.status().waiting))

    first = Client(desk, of("", 200), begin).wait()
    second = later[0].wait()
    assert waited == [1] and all(ended) and len(first.tokens) == 200 and second.end.reason == "length"


def test_a_pair_that_cannot_be_loaded_is_its_job_s_error_and_the_other_comes_back(shelf):
    desk = shelf.desk()
    shelf.broken.add("b")
    assert answer(desk, of("b")).end == Failure("b is gone", "specdec pull b", 3)
    assert not desk.status().loaded
    assert answer(desk, of("")).end.reason == "length"
    assert shelf.loads == ["", "b", ""]


def test_a_cancelled_job_loads_nothing(shelf):
    desk = shelf.desk()
    with desk.held():
        first = Client(desk, of("", 60))
        other = Client(desk, of("b"))
        other.ticket.cancel()
    assert (first.wait().end.reason, other.wait().end.reason) == ("length", "interrupted")
    assert shelf.loads == [""]


def test_a_pair_that_was_never_here_is_measured_once_it_is(shelf):
    """What does not fit is refused with both numbers, whether its pair is known already or not."""
    desk, shelf.ready["b"] = shelf.desk(), tiny_loaded(shelf.folder / "bounded", "plain", context_limit=20)
    late = answer(desk, of("b")).end
    assert isinstance(late, Failure) and late.message == "prompt is too long: 30 tokens > 19 maximum"
    assert late.exit_code == TooLong.exit_code == 2 and DoesNotFit.exit_code == 5
    with pytest.raises(TooLong, match="30 tokens > 19"):
        desk.submit(of("b"), print)


# Who waits: bounded, in order, and told when to come back.
def taken(number=0):
    return JobHandle(job(ids(5, number)), lambda event: None, 0.0)


def filled(most, count):
    queue, jobs = Queue(most), [taken(number) for number in range(count)]
    for one in jobs:
        queue.put(one)
    return queue, jobs


def test_first_come_first_served_and_nobody_overtakes_a_job_that_cannot_begin_yet():
    queue, jobs = filled(3, 3)
    assert queue.take(lambda one: one is jobs[1]) is None and queue.waiting() == tuple(jobs)
    assert [queue.take(lambda one: True) for _ in range(4)] == [*jobs, None] and not queue.waiting()
