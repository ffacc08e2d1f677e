"""Which display the options choose, events as JSON Lines, and several displays as one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fakes.ui_script import Terminal, drafted, script
from specdec_cli.errors import UsageError
from specdec_cli.events import from_dict, to_dict
from specdec_cli.ui.display import (
    JsonlDisplay,
    Tee,
    loading,
    open_display,
    print_doctor,
    print_error,
    print_notice,
)
from specdec_cli.ui.panel.live import PanelDisplay
from specdec_cli.ui.plain import PlainDisplay

FINDINGS = [("chip", "Apple M4", "fast"), ("memory", "24.0 GB", ""), ("path", "/a\x1b[2Jb", "x")]


@pytest.fixture(autouse=True)
def _width_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_the_doctor_writes_tabs_into_a_pipe() -> None:
    out = io.StringIO()
    print_doctor(out, FINDINGS)
    assert out.getvalue() == "chip\tApple M4\tfast\nmemory\t24.0 GB\npath\t/ab\tx\n"


def opened(out: io.StringIO | object, err: object, **options: object) -> type:
    """The kind of display these options give."""
    asked = {"name": "demo", "json": False, "panel": None, "quiet": False, "plain": False, "trace": None} | options
    with open_display(out, err, **asked) as display:
        return type(display)


@pytest.mark.slow
def test_the_panel_runs_only_where_it_can_be_drawn_and_is_wanted() -> None:
    terminal = Terminal(80, 24)
    try:
        assert opened(terminal.out, terminal.err) is PanelDisplay
        assert opened(io.StringIO(), terminal.err) is PanelDisplay
        assert opened(terminal.out, terminal.err, panel=False) is PlainDisplay
        assert opened(terminal.out, terminal.err, plain=True) is PlainDisplay
        assert opened(terminal.out, terminal.err, quiet=True) is PlainDisplay
        assert opened(terminal.out, io.StringIO(), panel=True) is PlainDisplay
        assert opened(terminal.out, terminal.err, json=True) is JsonlDisplay
    finally:
        terminal.close()


@pytest.mark.slow
def test_the_panel_is_as_small_and_the_answer_as_plain_as_asked() -> None:
    looks = ({}, {"small_panel": True}, {"colour_answer": False})
    asked = {"name": "demo", "json": False, "panel": None, "quiet": False, "plain": False, "trace": None}
    shown = []
    for look in looks:
        terminal = Terminal(80, 24)
        with open_display(terminal.out, terminal.err, **asked, **look) as display:
            for event in script():
                display.handle(event)
        shown.append((len(terminal.lines()), b"\x1b[32m read_lines(path" in terminal.written))
        terminal.close()
    assert shown == [(11, True), (3, True), (11, False)]


def test_a_trace_holds_the_same_lines_as_json_beside_the_usual_display(tmp_path: Path) -> None:
    out, trace = io.StringIO(), tmp_path / "trace.jsonl"
    asked = {"name": "demo", "panel": None, "quiet": True, "plain": False}
    with open_display(out, io.StringIO(), json=True, trace=trace, **asked) as display:
        assert isinstance(display, Tee)
        for event in script():
            display.handle(event)
    assert trace.read_text() == out.getvalue() != ""


def test_a_trace_that_cannot_be_written_is_a_usage_error_with_its_path(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "trace.jsonl"
    with pytest.raises(UsageError) as caught:
        opened(io.StringIO(), io.StringIO(), trace=missing)
    assert caught.value.message == f"--trace {missing} cannot be written: No such file or directory"


@pytest.mark.slow
def test_loading_is_shown_while_it_lasts_and_only_on_a_terminal() -> None:
    terminal, pipe = Terminal(80, 24), io.StringIO()
    try:
        with loading(terminal.err, "de\x1b[2Jmo", shown=True):
            assert terminal.lines() == ["loading demo…"]
        assert terminal.lines() == []
        with loading(terminal.err, "demo", shown=False), loading(pipe, "demo", shown=True):
            assert terminal.lines() == []
        assert pipe.getvalue() == ""
    finally:
        terminal.close()


def test_each_event_is_one_json_line_that_reads_back_as_the_same_event() -> None:
    out = io.StringIO()
    display = JsonlDisplay(out)
    events = script()
    for event in events:
        display.handle(event)
    display.close()
    lines = out.getvalue().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines)
    assert [from_dict(json.loads(line)) for line in lines][:-1] == events[:-1]
    assert json.loads(lines[-1]) == {**to_dict(events[-1]), "tokens": []}


def test_a_json_line_holds_printable_ascii_only_and_loses_nothing() -> None:
    out = io.StringIO()
    hostile = drafted(3, [" a", "é"], 1, "\x9b\x7f\u2028\ud800\x1b\n")
    JsonlDisplay(out).handle(hostile)
    line = out.getvalue()
    assert line.removesuffix("\n").isascii() and line.removesuffix("\n").replace(" ", "").isprintable()
    assert '"next_piece": "\\u009b\\u007f\\u2028\\ud800\\u001b\\n"' in line
    assert json.loads(line)["next_piece"] == hostile.next_piece


def piped(**options: object) -> list[str]:
    """What stderr gets of a reply whose stdout and stderr are pipes."""
    err = io.StringIO()
    asked = {"name": "demo", "json": False, "panel": None, "quiet": False, "plain": False, "trace": None} | options
    with open_display(io.StringIO(), err, **asked) as display:
        for event in script():
            display.handle(event)
    return err.getvalue().splitlines()


def test_a_pipe_gets_one_line_and_what_a_round_costs_on_request() -> None:
    assert len(piped()) == 1 and not piped(quiet=True)
    one, more = piped(verbose=True)
    assert [one] == piped() and more.startswith("a round costs 1.0 plain steps")


def test_on_a_terminal_errors_and_notices_break_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns a hint ended in `specde` and began again with `c chat`: no command to copy."""
    monkeypatch.setenv("COLUMNS", "30")
    error = UsageError("run needs a prompt, and there is none", "specdec run 'Why?', or specdec chat")
    watched = io.StringIO()
    monkeypatch.setattr(watched, "isatty", lambda: True)
    for width, err in ((30, watched), (200, io.StringIO())):
        print_error(err, error, plain=True)
        print_notice(err, error.hint, plain=True)
        lines = err.getvalue().splitlines()
        assert " ".join(lines).split() == f"error: {error.message} hint: {error.hint} {error.hint}".split()
        assert max(map(len, lines)) <= width and len(lines) == (6 if width == 30 else 3)
