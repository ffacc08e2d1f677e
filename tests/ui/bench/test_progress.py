"""Progress of a bench where no line can be drawn over."""

import io

from specdec_cli.ui.bench.progress import bench_progress, clock


def test_progress_into_a_file_is_a_line_a_phase():
    err = io.StringIO()
    with bench_progress(err) as report:
        report("learning from code: a", 0.1, 110.0)
        report("learning from chat: b", 0.2, 100.0)
        report("confirming K 4 on code: c", 0.5, 60.0)
    assert err.getvalue() == "learning… 1:50 left\nconfirming… 1:00 left\n"


def test_seconds_are_told_as_minutes():
    assert (clock(0), clock(75), clock(600)) == ("0:00", "1:15", "10:00")
