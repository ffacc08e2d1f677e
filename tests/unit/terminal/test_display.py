"""Which display the options choose, the plain and the JSON one, the trace beside it; errors and tables."""

from __future__ import annotations

import io
import re
from functools import partial
from pathlib import Path

import pytest

from fakes.ui_script import ANSWER, PREFILL, ROUNDS, START, Terminal, drafted, finish, script
from specdec_cli.core.errors import DoesNotFit, UsageError
from specdec_cli.core.events import Event, Failure, Finish, RoundDone
from specdec_cli.terminal.display import PlainDisplay, open_display, print_error, print_notice
from specdec_cli.terminal.look import Look
from specdec_cli.terminal.panel.live import PanelDisplay
from specdec_cli.terminal.summary import error_lines, summary
from specdec_cli.terminal.terminal import make_console

SUMMARY = "14 tokens in 5 passes · 283 tok/s · 3.39× faster (3.08–3.73) · accepted 64 % of drafted"


def shown(events: list[Event], out: object, err: object, **options: object) -> None:
    """These events, each on the display that these options give."""
    with open_display(out, err, Look(**options), "demo") as show:
        for event in events:
            show(event)


def draws(terminal: Terminal, out: object, err: object, **options: object) -> bool:
    """Whether a panel is drawn on the terminal."""
    terminal.settle()
    before = len(terminal.written)
    shown(script(), out, err, **options)
    terminal.settle()
    return "╭".encode() in terminal.written[before:]


@pytest.mark.slow
def test_the_panel_runs_only_where_it_can_be_drawn_and_is_wanted(terminal: Terminal) -> None:
    pipe = io.StringIO()
    assert draws(terminal, terminal.out, terminal.err) and draws(terminal, pipe, terminal.err)
    for options in ({"panel": False}, {"plain": True}, {"quiet": True}, {"json": True}):
        assert not draws(terminal, terminal.out, terminal.err, **options)
    assert not draws(terminal, terminal.out, pipe, panel=True) and "╭" not in pipe.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("coloured", [True, False])
def test_the_answer_beside_the_panel_is_as_plain_as_asked(terminal: Terminal, coloured: bool) -> None:
    shown(script(), terminal.out, terminal.err, colour_answer=coloured)
    lines = len(terminal.lines())  # all is read by then
    found = re.search(rb"\x1b\[[0-9;]+m read_lines\(path", bytes(terminal.written))
    assert (lines, found is not None) == (11, coloured)


def test_a_trace_holds_the_same_lines_as_json_beside_the_usual_display(tmp_path: Path) -> None:
    out, trace = io.StringIO(), tmp_path / "trace.jsonl"
    shown(script(), out, io.StringIO(), json=True, trace=trace)
    assert trace.read_text() == out.getvalue() != "" and out.getvalue().isascii()
    missing = tmp_path / "nowhere" / "trace.jsonl"
    with pytest.raises(UsageError, match=f"--trace {missing} cannot be written: No such file or directory"):
        shown([], io.StringIO(), io.StringIO(), trace=missing)


def plain(events: list[Event], quiet: bool = True) -> tuple[str, str]:
    """(stdout, stderr) of a plain display into pipes."""
    out, err = io.StringIO(), io.StringIO()
    display = PlainDisplay(out, err, Look(quiet=quiet))
    for event in events:
        display.handle(event)
    display.close()
    return out.getvalue(), err.getvalue()


def test_a_pipe_gets_the_raw_answer_with_one_newline_and_stderr_the_summary() -> None:
    assert plain(script(), quiet=False) == (ANSWER + "\n", SUMMARY + "\n")
    hostile = RoundDone(ROUNDS[0].round, (), "\x1b[2J", "a\x1b[2J\r\n")
    assert plain([START, PREFILL, hostile, finish()])[0] == "a\x1b[2J\r\n"
    assert plain([START, drafted(0, [], 0, "hi"), finish(tail=" you")])[0] == "hi you\n"
    assert plain([START, Finish("stop", "", (), "", {})], quiet=False) == ("", "")
    assert plain([START, PREFILL, ROUNDS[0], Failure("boom", "try again", 1)], quiet=False) == ("def\n", "")


def test_each_round_is_readable_before_the_next_one() -> None:
    class Flushed(io.StringIO):
        seen = ""

        def flush(self) -> None:
            self.seen = self.getvalue()

    out = Flushed()
    display = PlainDisplay(out, io.StringIO())
    display.handle(ROUNDS[0])
    assert out.seen == "def"


def test_closing_after_the_reader_has_gone_raises_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    display = PlainDisplay(Gone(), io.StringIO())
    with pytest.raises(BrokenPipeError):
        display.handle(ROUNDS[1])
    display.close()


@pytest.mark.slow
def test_a_terminal_gets_the_filtered_answer(terminal: Terminal) -> None:
    display = PlainDisplay(terminal.out, io.StringIO())
    for event in (START, drafted(0, [], 0, "a\x1b]52;c;"), drafted(1, [], 0, "aGk=\x07b\x1b[2Jc"), finish()):
        display.handle(event)
    assert terminal.lines() == ["abc"] and b"\x1b" not in terminal.written


# --rounds.


def many(count: int = 113) -> list[Event]:
    """A reply of so many rounds, every word of which is its own."""
    rounds = [
        drafted(n, [f" yes{n}", f" no{n}", f" lost{n}"], 1, f" own{n}\n" if n % 5 == 0 else f" own{n}")
        for n in range(count)
    ]
    text = "".join(done.text for done in rounds)
    return [START, PREFILL, *rounds, Finish("stop", text, (), "", {})]


def rows(count: int = 113) -> list[str]:
    """What `--rounds` says of it, blanks apart."""
    return [f"{n + 1} ✓␣yes{n} ✗␣no{n} ·␣lost{n} ↳ ␣own{n}{'↵' * (n % 5 == 0)} 1 of 3 12 ms" for n in range(count)]


def squeezed(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize("options", [{}, {"quiet": True}, {"json": True}, {"plain": True}])
def test_every_round_is_a_line_on_stderr_and_stdout_stays_what_it_is(options: dict) -> None:
    outs, errs = (io.StringIO(), io.StringIO()), (io.StringIO(), io.StringIO())
    for asked, out, err in zip((False, True), outs, errs, strict=True):
        shown(many(), out, err, rounds=asked, **options)
    assert squeezed(errs[1].getvalue().splitlines()) == [*rows(), *errs[0].getvalue().splitlines()]
    assert outs[0].getvalue() == outs[1].getvalue() != "" and "\x1b" not in errs[1].getvalue()


def test_a_round_s_line_is_there_with_its_round_and_those_of_a_reply_that_fails_too() -> None:
    err = io.StringIO()
    with open_display(io.StringIO(), err, Look(rounds=True), "demo") as show:
        for said, event in enumerate([*ROUNDS[:3], Failure("boom", "try again", 1)], 1):
            if said == 1:
                show(START)
            show(event)
            assert len(err.getvalue().splitlines()) == min(said, 3)


@pytest.mark.slow
def test_on_one_terminal_without_a_panel_rounds_come_at_once_and_the_answer_behind_them(terminal: Terminal) -> None:
    """The bug: where rounds end amid a line of the answer, as after an indent, every round waited for its end."""
    events = START, drafted(0, [], 0, "def f():"), drafted(1, ["\n    ", "if"], 1, "x"), Failure("boom", "again", 1)
    with open_display(terminal.out, terminal.err, Look(panel=False, rounds=True), "demo") as show:
        for event in events[:3]:
            show(event)
        assert [line.split()[0] for line in terminal.lines()] == ["1", "2"]
        show(events[3])
    assert [line.split()[0] for line in terminal.lines()] == ["1", "2", "def", "x"]


@pytest.mark.slow
def test_at_113_rounds_a_second_every_round_is_above_the_panel_whole_and_once(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(n / 113 for n in range(1000))
    monkeypatch.setattr("specdec_cli.terminal.display.PanelDisplay", partial(PanelDisplay, clock=lambda: next(seconds)))
    shown(many(), terminal.out, terminal.err, rounds=True)
    found = squeezed(terminal.scrolled() + terminal.lines())
    assert [line for line in found if line.split()[0].isdigit()] == rows()
    answer = [word for line in found if line.startswith("yes") for word in line.split()]
    assert answer == [word for n in range(113) for word in (f"yes{n}", f"own{n}")]


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


def test_a_summary_dims_neither_its_gain_nor_why_it_ended() -> None:
    """The bug: the separators' style was the whole line's, and dim yellow is unreadable on white."""
    (line,) = summary(START, finish("length", 0.012))
    told = [line.plain.index(word) for word in ("stopped", "faster", "tokens in")]
    console = make_console(io.StringIO(), plain=False)
    assert [line.get_style_at_offset(console, at).dim for at in told] == [None, None, True]


@pytest.mark.parametrize(
    "error", [DoesNotFit("14 GB\x1b[2J\nof 8", "ask\x9b5m less"), Failure("14 GB\nof 8", "ask less", 5)]
)
def test_an_error_is_two_lines_without_control_codes(error: DoesNotFit | Failure) -> None:
    assert error_lines(error).plain == "error: 14 GB of 8\nhint: ask less"
