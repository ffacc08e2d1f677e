"""Progress of a bench where no line can be drawn over."""

import io

from specdec_cli.ui.bench.progress import bench_progress, clock


def test_progress_into_a_file_is_a_line_a_phase():
    err = io.StringIO()
    with bench_progress(err) as progress:
        progress.report("warming up", 0.0, 110.0)
        progress.say("this machine is slow")
        progress.report("measuring K 4 on chat: b", 0.2, 100.0)
        progress.report("measuring K 4 on code: c", 0.5, 60.0)
    assert err.getvalue() == "warming… 1:50 left\nthis machine is slow\nmeasuring… 1:40 left\n"


def test_seconds_are_told_as_minutes():
    assert (clock(0), clock(75), clock(600)) == ("0:00", "1:15", "10:00")
