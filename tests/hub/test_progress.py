"""The bar that huggingface_hub and hf_xet draw on: whole bytes of one file, never fewer than before."""

from __future__ import annotations

import pytest

from specdec_cli.hub.progress import bar_class
from specdec_cli.hub.snapshot import RemoteFile


def test_a_server_that_ignores_ranges_does_not_make_progress_go_back():
    heard: list[tuple[str, int, int]] = []
    bar = bar_class(RemoteFile("w", 100, None, False), lambda *values: heard.append(values))()
    with bar:
        for step in (40, 30, -70, 50, 40, 10, 5):
            bar.update(step)
    assert heard == [("w", 40, 100), ("w", 70, 100), ("w", 90, 100), ("w", 100, 100)]


def test_xet_reports_the_files_bytes_through_the_same_bar():
    """The library's own Xet reporter, fed as hf_xet feeds it: 90 bytes on disk of 60 on the wire."""
    reporter = pytest.importorskip("huggingface_hub.utils._xet_progress_reporting")
    heard: list[tuple[str, int, int]] = []
    bar = bar_class(RemoteFile("w", 90, None, False), lambda *values: heard.append(values))

    class Report:
        total_bytes = 90
        total_bytes_completion_rate = total_transfer_bytes_completion_rate = 1.0

        def __init__(self, done: int, wire: int) -> None:
            self.total_bytes_completed, self.total_transfer_bytes_completed = done, wire

    with reporter.XetDownloadProgressReporter(
        reconstruction_desc="", total=90, log_level=30, tqdm_class=bar
    ) as progress:
        for done, wire in ((0, 30), (50, 60), (90, 60)):
            progress.update_progress(Report(done, wire))
    # Data that is not in the file yet is heard of, too.
    assert heard == [("w", 0, 90), ("w", 50, 90), ("w", 50, 90), ("w", 90, 90)]


def test_a_file_of_unknown_size_reports_what_came():
    heard: list[tuple[str, int, int]] = []
    bar = bar_class(RemoteFile("w", 0, None, False), lambda *values: heard.append(values))()
    for step in (40, None, 30):
        bar.update(step)
    assert heard == [("w", 40, 0), ("w", 70, 0)]


def test_a_file_that_is_continued_reports_all_of_its_bytes():
    heard: list[tuple[str, int, int]] = []
    bar = bar_class(RemoteFile("w", 100, None, False), lambda *values: heard.append(values))
    bar(total=60, initial=40).update(10)
    assert heard == [("w", 50, 100)]


def test_a_new_bar_of_the_same_file_does_not_report_less():
    """The library opens one bar for each connection."""
    heard: list[tuple[str, int, int]] = []
    bar = bar_class(RemoteFile("w", 100, None, False), lambda *values: heard.append(values))
    bar().update(60)
    bar().update(50)
    bar(initial=60).update(40)
    assert heard == [("w", 60, 100), ("w", 100, 100)]


def test_bytes_on_the_wire_are_heard_of_and_are_not_the_files():
    heard: list[tuple[str, int, int]] = []
    with bar_class(RemoteFile("w", 100, None, False), lambda *values: heard.append(values))() as bar:
        bar.update_transfer(50)
        bar.update_transfer(-50)
        bar.update(30)
        bar.update_transfer(200)
        bar.update(70)
        bar.update_transfer(10)
    assert heard == [("w", 0, 100), ("w", 30, 100), ("w", 30, 100), ("w", 100, 100)]


@pytest.mark.parametrize("size", [0, 100])
def test_words_under_the_bar_and_the_wire_of_an_unknown_size_are_not_reported(size):
    heard: list[tuple[str, int, int]] = []
    with bar_class(RemoteFile("w", size, None, False), lambda *values: heard.append(values))() as bar:
        bar.update_transfer(50 if not size else 0)
        bar.set_description_str("w")
        bar.refresh()
        bar.close()
    assert heard == []
