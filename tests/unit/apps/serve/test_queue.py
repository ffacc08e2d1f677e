"""Who waits: bounded, in order, and told when to come back."""

import threading

import pytest

from fakes.serving import ids, job
from specdec_cli.apps.serve.http.llama import health
from specdec_cli.apps.serve.job import Busy, JobHandle, Queue, SchedulerStatus
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.events import Reading


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
    assert queue.take_cancelled() == [jobs[0], jobs[2]] and queue.wait(None)
    with pytest.raises(Busy, match="stopping"):
        queue.put(taken())


def test_waiting_ends_when_a_job_comes_and_after_its_time():
    queue = Queue(1)
    assert not queue.wait(0.001)
    threading.Timer(0.01, queue.put, [taken()]).start()
    assert queue.wait(5)


def test_health_tells_how_far_a_prompt_is_read():
    handle = JobHandle(job(ids(900)), lambda event: None, 0.0)
    handle.notify(Reading("target", 512, 900))
    model = Model("demo", "t", None, None, 128, None)
    (told,) = health(model, SchedulerStatus(running=(handle,)))["jobs"]
    assert told == {"endpoint": "test", "prompt_tokens": 900, "read_tokens": 512}
    assert "jobs" not in health(model, SchedulerStatus())
