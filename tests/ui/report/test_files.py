"""Two files or none, and refusals before any work."""

import io
import json

import pytest

from fakes.report import report
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.ui.report.files import print_report, report_files, write_report


def test_a_report_is_json_and_a_page_beside_it(tmp_path):
    files = report_files(tmp_path / "mac.json")
    write_report(report(), files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mac.html", "mac.json"]
    found = json.loads(files[0].read_text())
    assert (found["report"], found["schema"], found["parts"][0]["name"]) == ("specdec doctor", 1, "machine")
    assert files[1].read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("name", "message"),
    [("mac.txt", "ends in .txt"), ("mac", "ends in nothing"), ("none/mac.json", "there is no such folder")],
)
def test_a_name_that_cannot_be_written_is_refused(tmp_path, name, message):
    with pytest.raises(UsageError, match=message):
        report_files(tmp_path / name)


@pytest.mark.parametrize("name", ["mac.json", "mac.html"])
def test_a_folder_is_no_file(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        report_files(tmp_path / "mac.json")


def test_a_page_that_cannot_be_written_leaves_no_file_at_all(tmp_path):
    (tmp_path / ".mac.html.part").mkdir()
    with pytest.raises(SpecdecError, match="cannot be written"):
        write_report(report(), report_files(tmp_path / "mac.json"))
    assert [path.name for path in tmp_path.iterdir()] == [".mac.html.part"]


def test_the_person_sees_the_summary_and_what_is_not_in_it():
    out = io.StringIO()
    print_report(out, report())
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("pair\tqwen3-8b\t") and lines[-1].startswith("It holds no prompt and no answer, ")
