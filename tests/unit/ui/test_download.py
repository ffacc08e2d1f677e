"""Progress of a pull where no bar can be drawn, and the sign of a stall."""

import io
from types import SimpleNamespace

from rich.progress import Progress

from specdec_cli.ui.download import STALLED_SECONDS, PullScreen, Pulse, _bars, pull_display


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
    report = _bars(progress, 1000)
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
