"""What the demo pair is, said before it answers."""

import io
from datetime import date

import pytest

from specdec_cli.cli import demo
from specdec_cli.pairs.pair import DEMO

LINE = "demo pair: it completes Python and knows nothing else; a real one: specdec pull\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def said(monkeypatch, tmp_path, err, name=DEMO, shown=True):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(demo.sys, "stderr", err)
    demo.introduce_demo(name, shown=shown, plain=True)
    return err.getvalue()


def test_a_person_is_told_in_full_once_a_day(monkeypatch, tmp_path):
    first, second = (said(monkeypatch, tmp_path, Terminal()) for _ in range(2))
    assert "answers anything else with nonsense" in first and "specdec pull" in first
    assert second.split() == LINE.split()  # a terminal's rows break between words


def test_the_next_day_begins_anew(tmp_path):
    stamp = tmp_path / "state" / "demo-shown"
    demo.remember(stamp, date(2026, 11, 21))
    assert demo.shown_on(stamp, date(2026, 11, 21)) and not demo.shown_on(stamp, date(2026, 11, 22))


@pytest.mark.parametrize("written", [b"\xff\xfe", b"", b"soon"])
def test_nonsense_in_the_file_only_shows_it_again(tmp_path, written):
    (tmp_path / "demo-shown").write_bytes(written)
    assert not demo.shown_on(tmp_path / "demo-shown", date(2026, 11, 21))


def test_a_folder_that_cannot_be_written_harms_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    demo.remember(tmp_path / "file" / "demo-shown", date(2026, 11, 21))


def test_a_pipe_gets_one_line_and_nothing_where_stderr_holds_errors_only(monkeypatch, tmp_path):
    assert said(monkeypatch, tmp_path, io.StringIO()) == LINE
    assert said(monkeypatch, tmp_path, io.StringIO(), shown=False) == ""
    assert said(monkeypatch, tmp_path, io.StringIO(), name="another") == ""


@pytest.mark.parametrize("command", ["run", "race"])
def test_a_command_says_what_the_demo_is_before_the_answer(specdec, command):
    _, _, err = specdec(command, "-n", "4", "Why is the sky blue?")
    assert err.startswith(LINE)


@pytest.mark.parametrize("command", ["run", "race"])
@pytest.mark.parametrize("flag", ["-q", "--json"])
def test_quiet_and_json_keep_stderr_for_errors(specdec, command, flag):
    assert specdec(command, "-n", "4", flag, "Why is the sky blue?")[2] == ""


def test_another_pair_is_not_introduced(specdec, tiny_pair):
    _, _, err = specdec("run", "-n", "4", "--raw", "--target", tiny_pair[0], "--draft", tiny_pair[1], "def f(")
    assert "demo" not in err
