"""Whether each draft step waits for the one before, learned from seconds alone."""

import pytest

from specdec_cli.engine import device
from specdec_cli.engine.drafters.pace import SHORTEST_CONTEXT, TRIALS, Pace


@pytest.fixture(autouse=True)
def _ahead(monkeypatch):
    monkeypatch.setattr(device, "queues_ahead", lambda: True)


def learned(queued, waited):
    trials = Pace().trials(SHORTEST_CONTEXT, 4)
    while (waits := trials.untried) is not None:
        trials.seconds[waits].append(waited if waits else queued)
    return trials


@pytest.mark.parametrize(("queued", "waited", "waits"), [(1.7, 1.1, True), (1.0, 1.1, False), (1.0, 0.99, False)])
def test_the_faster_way_is_kept_and_a_tie_is_queued(queued, waited, waits):
    assert learned(queued, waited).waiting_is_faster is waits


def test_each_way_is_tried_equally_often():
    assert [len(seconds) for seconds in learned(1.0, 1.0).seconds.values()] == [TRIALS, TRIALS]


def test_one_slow_trial_decides_nothing():
    trials = learned(1.0, 1.1)
    trials.seconds[False][0] = 9.0
    assert not trials.waiting_is_faster


def test_a_context_twice_as_long_is_tried_anew():
    pace = Pace()
    assert pace.trials(1000, 4) is pace.trials(600, 4) is not pace.trials(1200, 4)


@pytest.mark.parametrize(("context", "k"), [(SHORTEST_CONTEXT - 1, 4), (SHORTEST_CONTEXT, 1)])
def test_nothing_is_tried_where_a_copy_is_small_or_there_is_one_step(context, k):
    assert Pace().trials(context, k) is None


def test_a_device_that_never_runs_ahead_never_copies(monkeypatch):
    monkeypatch.setattr(device, "queues_ahead", lambda: False)
    assert Pace().trials(4096, 4) is None
