"""One desk and several pairs: one is loaded at a time, after the answers that run, and all get their turn."""

import gc
import threading
import weakref
from dataclasses import replace

import pytest

from fakes.serving import Client, Desk, alone, answer, ids, job, tiny_loaded
from specdec_cli.apps.serve.job import TooLarge, TooLong
from specdec_cli.apps.serve.scheduler import SchedulerOptions
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.events import Failure

KINDS = {"": "plain", "b": "recurrent", "c": "window"}


class Shelf:
    """Loads pairs by name; `loads` are the names in order, `most` how many were ever in memory at once."""

    def __init__(self, folder):
        self.folder, self.loads, self.threads, self.most, self._here = folder, [], set(), 0, weakref.WeakSet()
        self.broken = set()

    def load(self, name=""):
        self.loads.append(name)
        self.threads.add(threading.current_thread())
        if name in self.broken:
            raise NotAvailable(f"{name} is gone", f"specdec pull {name}")
        pair = tiny_loaded(self.folder / str(len(self.loads)), KINDS[name])
        self._here.add(pair.tokenizer)
        gc.collect()
        self.most = max(self.most, len(self._here))
        return pair

    def desk(self, **options):
        return Desk(self.load, SchedulerOptions(**{"cache_bytes": 1 << 30, **options}), switch=self.load)


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path)


def of(pair, tokens=12, seed=0, **more):
    return replace(job(ids(30, seed), tokens, **more), pair=pair)


@pytest.mark.slow
def test_each_job_is_answered_by_its_pair_and_one_is_in_memory_at_a_time(shelf, tmp_path):
    desk = shelf.desk()
    for name in ("", "b", "c", "b", ""):
        own = tiny_loaded(tmp_path / f"own{len(shelf.loads)}", KINDS[name])
        assert answer(desk, of(name)).end.tokens == alone(own, of(name))
        assert desk.status().pair == name
    assert shelf.loads == ["", "b", "c", "b", ""] and shelf.threads == {desk._thread}
    assert shelf.most == 1
    desk.close()


@pytest.mark.slow
def test_an_answer_that_runs_ends_before_another_pair_takes_its_place(shelf):
    desk = shelf.desk()
    later, waited, ended = [], [], []

    def begin(client, event):
        if client.tokens and not later:
            later.append(Client(desk, of("b"), lambda other, event: ended.append(client.done.is_set())))
            waited.append(len(desk.status().waiting))

    first = Client(desk, of("", 200), begin).wait()
    second = later[0].wait()
    assert waited == [1] and all(ended) and len(first.tokens) == 200 and second.end.reason == "length"
    desk.close()


def test_a_pair_that_cannot_be_loaded_is_its_job_s_error_and_the_other_comes_back(shelf):
    desk = shelf.desk()
    shelf.broken.add("b")
    assert answer(desk, of("b")).end == Failure("b is gone", "specdec pull b", 3)
    assert not desk.status().loaded
    assert answer(desk, of("")).end.reason == "length"
    assert shelf.loads == ["", "b", ""]
    desk.close()


def test_a_cancelled_job_loads_nothing(shelf):
    desk = shelf.desk(parallel=1)
    with desk.held():
        first = Client(desk, of("", 60))
        other = Client(desk, of("b"))
        other.ticket.cancel()
    assert (first.wait().end.reason, other.wait().end.reason) == ("length", "interrupted")
    assert shelf.loads == [""]
    desk.close()


def test_a_pair_that_was_never_here_is_measured_once_it_is(shelf, monkeypatch):
    """What does not fit is refused with both numbers, whether its pair is known already or not."""
    desk = shelf.desk()
    monkeypatch.setitem(KINDS, "b", "plain")
    bounded = tiny_loaded(shelf.folder / "bounded", "plain", context_limit=20)
    monkeypatch.setattr(shelf, "load", None)
    desk._switch = lambda name: bounded
    late = answer(desk, of("b")).end
    assert isinstance(late, Failure) and late.message == "prompt is too long: 30 tokens > 19 maximum"
    assert late.exit_code == TooLong.exit_code == 2 and TooLarge.exit_code == 5
    with pytest.raises(TooLong, match="30 tokens > 19"):
        desk.submit(of("b"), print)
    desk.close()
