"""A time budget: shares, what is left out, what fails, and what is kept."""

import pytest

from specdec_cli.audit.report.budget import Deadline, Impossible, Task, carry_out
from specdec_cli.errors import DoesNotFit


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def spending(clock, seconds, note=""):
    def work(data, deadline):
        data["left"] = deadline.left_seconds
        clock.now += seconds
        return note

    return work


def run(clock, tasks, budget=100.0):
    seen = []
    parts = carry_out(tasks, budget, clock, lambda *progress: seen.append(progress))
    assert seen == [(place, len(tasks), task.name) for place, task in enumerate(tasks, 1)]
    return parts


def test_each_part_gets_its_share_of_what_is_left_so_saved_time_is_there_for_later_ones(clock):
    tasks = [Task(name, 50, 0, spending(clock, 10)) for name in ("a", "b")]
    first, second = run(clock, tasks)
    assert (first.data["left"], second.data["left"]) == (50.0, 90.0)
    assert (first.status, first.seconds, first.note) == ("done", 10.0, "")


def test_a_part_without_its_least_time_is_left_out_and_named(clock):
    parts = run(clock, [Task("a", 10, 0, spending(clock, 97)), Task("b", 10, 5, spending(clock, 1))])
    assert (parts[1].name, parts[1].status, parts[1].data) == ("b", "left out", {})
    assert parts[1].note == "no time: 3 s were left, and it takes 5 s at least"


def test_a_part_that_says_why_it_is_not_whole_is_partial(clock):
    [part] = run(clock, [Task("a", 10, 0, spending(clock, 1, "time for 2 of 9"))])
    assert (part.status, part.note) == ("partial", "time for 2 of 9")


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (Impossible("the pair has no draft"), "left out", "the pair has no draft"),
        (DoesNotFit("9 GB and 8 GB", "a hint"), "failed", "9 GB and 8 GB"),
        (RuntimeError("Insufficient Memory"), "failed", "RuntimeError: Insufficient Memory"),
    ],
)
def test_a_part_that_fails_keeps_what_it_found_and_the_next_still_runs(clock, error, status, note):
    def failing(data, deadline):
        data["found"] = 1
        raise error

    first, second = run(clock, [Task("a", 1, 0, failing), Task("b", 1, 0, spending(clock, 1))])
    assert (first.status, first.note, first.data) == (status, note, {"found": 1})
    assert second.status == "done"


def test_ctrl_c_ends_everything(clock):
    def interrupted(data, deadline):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(clock, [Task("a", 1, 0, interrupted)])


def test_a_deadline_is_over_at_its_end(clock):
    deadline = Deadline(clock, 101.0)
    assert (deadline.left_seconds, deadline.over()) == (1.0, False)
    clock.now = 102.0
    assert (deadline.left_seconds, deadline.over()) == (0.0, True)
