"""Progress of a pull where no bar can be drawn, and the sign of a stall."""

import io
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pyte
import pytest
from rich.live import Live
from rich.progress import Progress

from specdec_cli.apps.pairs.download import STALLED_SECONDS, PullScreen, Pulse, _bars, pull_display


def test_a_pipe_gets_one_line_for_each_completed_file():
    err = io.StringIO()
    with pull_display(err, 300) as report:
        for done in (0, 50, 100, 100):
            report("a.safetensors", done, 100)
        report("b\x1b[2J.json", 200, 200)
    assert err.getvalue() == "a.safetensors  100 B\nb.json  200 B\n"


def test_a_stall_is_shown_after_a_while_and_goes_with_the_next_byte():
    now = [0.0]
    pulse, task = Pulse(lambda: now[0]), SimpleNamespace(id=1, fields={"reports": 5}, finished=False)
    assert pulse.render(task).plain == ""
    now[0] = STALLED_SECONDS - 0.1
    assert pulse.render(task).plain == ""
    now[0] = STALLED_SECONDS + 2
    assert pulse.render(task).plain == "no data for 12 s"
    task.fields = {"reports": 6}
    assert pulse.render(task).plain == ""


def test_data_that_is_not_in_the_file_yet_is_no_stall():
    """The bug: Xet writes in flushes, and a busy download said that no data came."""
    now = [0.0]
    progress = Progress(Pulse(lambda: now[0]), disable=True)
    report = _bars(progress, 1000, nullcontext())
    shown = []
    for done in (100, 100, 100):
        report("a.safetensors", done, 500)
        shown += [progress.columns[0].render(task).plain for task in progress.tasks]
        now[0] += STALLED_SECONDS - 1
    assert shown == [""] * 6
    now[0] += 2
    assert [progress.columns[0].render(task).plain for task in progress.tasks] == ["no data for 11 s"] * 2


def test_a_finished_file_never_stalls():
    now = [0.0]
    pulse, task = Pulse(lambda: now[0]), SimpleNamespace(id=1, fields={}, finished=True)
    pulse.render(task)
    now[0] = 100.0
    assert pulse.render(task).plain == ""


def test_a_pull_writes_filtered_lines():
    err = io.StringIO()
    PullScreen(err).line("to download: 5\x1b[2J MB")
    assert err.getvalue() == "to download: 5 MB\n"


@pytest.mark.slow
def test_refreshing_erases_no_line_of_a_complete_file(monkeypatch):
    """rich's own refreshing drew between a line's measure of the bars and its writing: a pull lost a file's line."""
    monkeypatch.setenv("TERM", "xterm")
    measured = Live.process_renderables
    monkeypatch.setattr(Live, "process_renderables", lambda live, these: (measured(live, these), time.sleep(0.01))[0])
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err.isatty = lambda: True
    names = [f"part-{n}.safetensors" for n in range(60)]
    with pull_display(err, 60 * 1000) as report:
        for name in names:
            report(name, 500, 1000)
            report(name, 1000, 1000)
    screen = pyte.HistoryScreen(80, 24, history=1000)
    pyte.Stream(screen).feed(err.buffer.getvalue().decode().replace("\n", "\r\n"))
    rows = ["".join(row[x].data for x in range(80)).split() for row in screen.history.top]
    rows += [line.split() for line in screen.display]
    assert [row[0] for row in rows if row and row[0] != "all"] == names
