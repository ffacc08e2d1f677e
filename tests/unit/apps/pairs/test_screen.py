"""The progress of a pull, in a pipe and on a terminal."""

import io

import pytest

from fakes.racing import Clock
from specdec_cli.apps.pairs.download import downloading
from specdec_cli.terminal.panel.status import STALLED_SECONDS

GB = 10**9


@pytest.fixture(autouse=True)
def _width_80(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def screen(drawn):
    """Feeds what was written to a terminal of 80 columns, and gives its rows."""
    shown, err, stream = drawn(80)

    def rows():
        stream.feed(err.getvalue().replace("\n", "\r\n"))
        err.seek(err.truncate(0))
        return [row.rstrip() for row in shown.display if row.strip()]

    return err, rows


def test_a_pipe_gets_one_line_for_each_completed_file():
    err = io.StringIO()
    with downloading(err, 300) as report:
        for done in (0, 50, 100, 100):
            report("a.safetensors", done, 100)
        report("b\x1b[2J.json", 200, 200)
    assert err.getvalue() == "a.safetensors  100 B\nb.json  200 B\n"


def test_one_row_says_how_much_came_how_fast_and_of_what_and_each_file_that_came_stays_above_it(screen):
    (err, rows), clock = screen, Clock()
    with downloading(err, 3 * GB, clock) as report:
        report("Big/config.json", 700, 700)
        assert rows() == ["Big/config.json  700 B", "downloading, 0.0 of 3.0 GB · Big/config.json"]
        clock.now += 30
        report("Big/model-1.safetensors", GB, 2 * GB)
        report("Big/model-1.safetensors", GB - 5, 2 * GB)  # a server that ignores ranges begins anew
        assert rows()[1:] == ["downloading, 1.0 of 3.0 GB · 30 s · 33.3 MB/s · 1:00 left"]
        report("Big/model-1.safetensors", 2 * GB, 2 * GB)
        assert rows()[1] == "Big/model-1.safetensors  2.0 GB"
    assert rows() == ["Big/config.json  700 B", "Big/model-1.safetensors  2.0 GB"]


def test_what_comes_and_is_not_in_its_file_yet_is_no_stall(screen):
    """The bug: Xet writes in flushes, and a busy download said that no data came."""
    (err, rows), clock = screen, Clock()
    with downloading(err, 1000, clock) as report:
        for _ in range(3):
            clock.now += STALLED_SECONDS - 1
            report("a.safetensors", 100, 500)
            assert "no data" not in rows()[0]
