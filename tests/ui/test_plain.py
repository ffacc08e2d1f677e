"""Claims about the plain and the JSON displays."""

from __future__ import annotations

import io

import pytest

from fakes.ui_script import ANSWER, PREFILL, ROUNDS, START, Terminal, drafted, finish, script
from specdec_cli.events import Failure, Finish, RoundDone
from specdec_cli.ui.plain import PlainDisplay

SUMMARY = "14 tokens in 5 passes · 283 tok/s · 3.39× faster (3.08–3.73) · accepted 64 % of drafted"


@pytest.fixture(autouse=True)
def _width_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def plain(events: list, quiet: bool = False) -> tuple[str, str]:
    """(stdout, stderr) of a plain display into pipes."""
    out, err = io.StringIO(), io.StringIO()
    display = PlainDisplay(out, err, quiet)
    for event in events:
        display.handle(event)
    display.close()
    return out.getvalue(), err.getvalue()


def test_a_pipe_gets_the_raw_answer_with_one_newline_and_stderr_the_summary() -> None:
    assert plain(script()) == (ANSWER + "\n", SUMMARY + "\n")


def test_a_pipe_keeps_control_characters() -> None:
    hostile = RoundDone(ROUNDS[0].round, (), "\x1b[2J", "a\x1b[2J\r\n")
    assert plain([START, PREFILL, hostile, finish()], quiet=True)[0] == "a\x1b[2J\r\n"


def test_no_second_newline_follows_an_answer_that_has_one() -> None:
    assert plain([START, PREFILL, drafted(0, [], 0, "hi\n"), finish()], quiet=True)[0] == "hi\n"


def test_an_empty_answer_writes_nothing() -> None:
    assert plain([START, Finish("stop", "", (), "", {})]) == ("", "")


def test_text_held_back_to_the_end_is_written() -> None:
    assert plain([START, drafted(0, [], 0, "hi"), finish(tail=" you")], quiet=True)[0] == "hi you\n"


def test_each_round_is_readable_before_the_next_one() -> None:
    class Flushed(io.StringIO):
        seen = ""

        def flush(self) -> None:
            self.seen = self.getvalue()

    out = Flushed()
    display = PlainDisplay(out, io.StringIO(), quiet=True)
    display.handle(ROUNDS[0])
    assert out.seen == "def"
    display.handle(ROUNDS[1])
    assert out.seen == "def read_lines(path):"


def test_a_failure_ends_the_partial_line_and_leaves_the_message_to_the_error_boundary() -> None:
    assert plain([START, PREFILL, ROUNDS[0], Failure("boom", "try again", 1)]) == ("def\n", "")


def test_closing_after_the_reader_has_gone_raises_nothing() -> None:
    class Gone(io.StringIO):
        gone = False

        def write(self, text: str) -> int:
            if self.gone:
                raise BrokenPipeError
            return super().write(text)

    out = Gone()
    display = PlainDisplay(out, io.StringIO(), quiet=True)
    display.handle(ROUNDS[0])
    out.gone = True
    with pytest.raises(BrokenPipeError):
        display.handle(ROUNDS[1])
    display.close()
    assert out.getvalue() == "def"


@pytest.mark.slow
def test_a_terminal_gets_the_filtered_answer() -> None:
    terminal = Terminal(80, 24)
    try:
        display = PlainDisplay(terminal.out, io.StringIO(), quiet=True)
        for event in (START, drafted(0, [], 0, "a\x1b]52;c;"), drafted(1, [], 0, "aGk=\x07b\x1b[2Jc"), finish()):
            display.handle(event)
        assert terminal.lines() == ["abc"]
        assert b"\x1b" not in terminal.written
    finally:
        terminal.close()
