"""Who waits: bounded, in order, and told when to come back."""

import random
import threading
from dataclasses import replace

import pytest

from fakes.serving import ids, job
from specdec_cli.serve.job import Busy
from specdec_cli.serve.queue import JobHandle, Queue


def taken(number=0):
    return JobHandle(job(ids(5, number)), lambda event: None, 0.0)


def filled(most, count):
    queue, jobs = Queue(most), [taken(number) for number in range(count)]
    for one in jobs:
        queue.put(one)
    return queue, jobs


def test_first_come_first_served_and_positions_count_who_is_before():
    queue, jobs = filled(3, 3)
    assert queue.waiting() == tuple(jobs)
    assert [queue.take(lambda one: True) for _ in range(4)] == [*jobs, None]
    assert jobs[2] not in queue.waiting()


def test_nobody_overtakes_a_job_that_cannot_begin_yet():
    queue, jobs = filled(3, 2)
    assert queue.take(lambda one: one is jobs[1]) is None
    assert queue.waiting() == tuple(jobs)


def of(*pairs):
    queue = Queue(99)
    jobs = [JobHandle(replace(job(ids(5)), pair=pair), lambda event: None, 0.0) for pair in pairs]
    for one in jobs:
        queue.put(one)
    return queue, jobs


def anyone(taken):
    return True


def test_jobs_that_come_later_do_not_put_a_switch_off():
    """Else one busy client could keep every other pair away."""
    queue, jobs = of("a", "b", "a")
    assert queue.take(anyone, "a") is jobs[0] and queue.take(anyone, "a") is jobs[2]
    late = [JobHandle(replace(job(ids(5)), pair="a"), lambda event: None, 0.0) for _ in range(2)]
    for one in late:
        queue.put(one)
    assert queue.take(anyone, "a", busy=True) is None
    assert queue.take(anyone, "a") is jobs[1]
    assert queue.take(anyone, "b", busy=True) is None and queue.take(anyone, "b") is late[0]


def test_a_switch_waits_for_the_answers_that_run():
    queue, jobs = of("b")
    assert queue.take(anyone, "a", busy=True) is None and queue.take(anyone, "a") is jobs[0]


def test_no_job_lets_more_others_pass_than_wait_at_once_for_each_before_it():
    """400 jobs for four pairs at random, the queue always full: a job passes on at most a queue of others for each
    place that it still has before it, and in fact far fewer."""
    most, rng, queue, passed, left, loaded = 12, random.Random(1), Queue(12), {}, 0, "a"
    while left < 400:
        while len(queue.waiting()) < most:
            one = JobHandle(replace(job(ids(5)), pair=rng.choice("aaaaabcd")), lambda event: None, 0.0)
            queue.put(one)
            passed[one] = 0
        taken = queue.take(anyone, loaded)
        loaded, left = taken.job.pair, left + 1
        del passed[taken]
        for one in passed:
            passed[one] += 1
        assert max(passed.values()) < most * most / 2


def test_a_full_queue_says_how_many_wait_and_when_to_come_back():
    queue, _ = filled(2, 2)
    for _ in range(200):
        queue.note_seconds(20.0)
    with pytest.raises(Busy, match="2 requests wait already, and 2 may") as refused:
        queue.put(taken())
    assert refused.value.retry_seconds == 20


def test_only_the_cancelled_leave_until_it_closes():
    queue, jobs = filled(3, 3)
    jobs[1].cancel()
    assert queue.take_cancelled() == [jobs[1]] and queue.waiting() == (jobs[0], jobs[2])
    queue.close()
    assert queue.take_cancelled() == [jobs[0], jobs[2]]
    with pytest.raises(Busy, match="stopping"):
        queue.put(taken())


def test_waiting_ends_when_a_job_comes_when_it_closes_and_after_its_time():
    queue = Queue(1)
    assert not queue.wait(0.001)
    threading.Timer(0.01, queue.put, [taken()]).start()
    assert queue.wait(5)
    other = Queue(1)
    threading.Timer(0.01, other.close).start()
    assert other.wait(None)
