"""Who waits: bounded, in order, and told when to come back."""

import threading

import pytest

from fakes.serving import ids, job
from specdec_cli.serve.job import Busy
from specdec_cli.serve.queue import Queue
from specdec_cli.serve.work import Taken


def taken(number=0):
    return Taken(job(ids(5, number)), lambda event: None, 0.0)


def filled(most, count):
    queue, jobs = Queue(most), [taken(number) for number in range(count)]
    for one in jobs:
        queue.put(one)
    return queue, jobs


def test_first_come_first_served_and_positions_count_who_is_before():
    queue, jobs = filled(3, 3)
    assert [queue.position(one) for one in jobs] == [0, 1, 2]
    assert [queue.take(lambda one: True) for _ in range(4)] == [*jobs, None]
    assert queue.position(jobs[2]) == 0


def test_nobody_overtakes_a_job_that_cannot_begin_yet():
    queue, jobs = filled(3, 2)
    assert queue.take(lambda one: one is jobs[1]) is None
    assert queue.waiting() == tuple(jobs)


def test_a_full_queue_says_how_many_wait_and_when_to_come_back():
    queue, _ = filled(2, 2)
    for _ in range(200):
        queue.took(20.0)
    with pytest.raises(Busy, match="2 requests wait already, and 2 may") as refused:
        queue.put(taken())
    assert refused.value.retry_seconds == 20


@pytest.mark.parametrize(("seconds", "told"), [(0.001, 1), (5000.0, 60)])
def test_when_to_come_back_is_never_at_once_and_never_in_an_hour(seconds, told):
    queue, _ = filled(1, 1)
    for _ in range(200):
        queue.took(seconds)
    with pytest.raises(Busy) as refused:
        queue.put(taken())
    assert refused.value.retry_seconds == told


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
