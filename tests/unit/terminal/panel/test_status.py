"""What takes long: one row that never wraps, whose time goes on by itself; in a pipe a line before and one after."""

from __future__ import annotations

import io
import re
import threading
import time

import pyte
import pytest
from rich.cells import cell_len

from fakes.racing import Clock
from fakes.ui_script import START, Terminal, script
from specdec_cli.core.events import Prefill, Reading
from specdec_cli.core.format import lasted, progress
from specdec_cli.core.progress import Step
from specdec_cli.terminal.display import PlainDisplay
from specdec_cli.terminal.panel import status
from specdec_cli.terminal.panel.live import PanelDisplay
from specdec_cli.terminal.panel.status import StatusLine, status_row, ticking
from specdec_cli.terminal.suspension import answer_press, answered

GB = 10**9
STEPS = [
    Step(),
    Step("", 31 * GB // 10, 96 * GB // 10, "bytes"),
    Step("proving the head", 3, 4),
    Step("", 1024, 4000, "token", "about 9 s left"),
    Step("", 26, 100, "%", "1:40 left · K 4 on chat: 模型模型模型"),
    Step("comparing\ttokenizers", 2, 8, note="a\nb\x1b[2Jc" * 9),
]
TITLES = [
    "loading qc",
    "loading /a/very/long/path/of/a/model",
    "loading 模型模型模型模型模型",
    "👩‍👩‍👧" * 20,
    "é" * 79,
    "",
]


def test_a_row_says_what_is_done_how_much_of_how_much_and_since_when() -> None:
    rows = [status_row("loading qc", step, 12.7, 80) for step in STEPS[:5]]
    assert rows == [
        "loading qc · 12 s",
        "loading qc, 3.1 of 9.6 GB · 12 s",
        "proving the head 3 of 4 · 12 s",
        "loading qc, 1 024 of 4 000 tokens · 12 s · about 9 s left",
        "loading qc, 26 % · 12 s · 1:40 left · K 4 on chat: 模型模型模型",
    ]
    assert status_row("loading qc", Step(), 0.3, 80) == "loading qc…"
    assert status_row("loading qc", Step("", 0, 96 * GB // 10, "bytes"), 0.3, 80) == "loading qc, 9.6 GB…"
    assert [lasted(s) for s in (0.9, 59.9, 60, 3725)] == ["0 s", "59 s", "1 min 0 s", "62 min 5 s"]
    assert [progress(*of) for of in ((0, 8), (0, 0), (5, 340_000_000, "bytes"), (3, 8))] == [
        "0 of 8", "", "0 of 340 MB", "3 of 8",
    ]  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("title", TITLES)
def test_no_row_is_too_wide_and_its_figures_stay(title: str, step: Step) -> None:
    for width in range(1, 130):
        row = status_row(title, step, 12.7, width)
        assert cell_len(row) <= width and not set(row) & set("\n\t\x1b"), (width, row)
        assert width < 33 or ("12 s" in row and progress(step.done, step.of, step.unit) in row), (width, row)


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 20, 37, 80])
def test_it_never_outlives_its_row_at_any_width(drawn, title: str, columns: int) -> None:
    """`run --target PATH` on a terminal narrower than that left its upper rows, once for each time it was written."""
    screen, err, stream = drawn(columns)
    with StatusLine(err, title) as line:
        for step in STEPS:
            line.say(step)
            stream.feed(err.getvalue())
            err.seek(err.truncate(0))
            assert screen.cursor.y == 0 and any(row.strip() for row in screen.display)
    stream.feed(err.getvalue())
    assert not any(row.strip() for row in screen.display) and pyte.modes.DECAWM in screen.mode
    assert not screen.cursor.hidden


def test_its_time_goes_on_while_nothing_is_heard_and_a_line_may_come_in_between(drawn) -> None:
    screen, err, stream = drawn(60)
    clock = Clock()

    def seen() -> list[str]:
        stream.feed(err.getvalue().replace("\n", "\r\n"))
        err.seek(err.truncate(0))
        return [row.rstrip() for row in screen.display if row.strip()]

    with StatusLine(err, "loading qc", clock=clock) as line:
        assert seen() == ["loading qc…"]
        line.say(STEPS[1])
        clock.now += 12.4
        line.tick()
        assert seen() == ["loading qc, 3.1 of 9.6 GB · 12 s"]
        clock.now += 0.2
        line.tick()
        assert err.getvalue() == ""  # nothing changed
        line.tell("no head drafts: it is another model's\x1b[2J")
        line.tick()
        assert seen() == ["no head drafts: it is another model's", "loading qc, 3.1 of 9.6 GB · 12 s"]
    assert seen() == ["no head drafts: it is another model's"]


def test_where_data_is_awaited_a_stall_is_shown_after_a_while_and_goes_with_the_next_byte(drawn) -> None:
    screen, err, stream = drawn(60)
    clock, shown = Clock(), []
    with StatusLine(err, "downloading", clock=clock, awaits_data=True) as line:
        for seconds, heard in ((0.0, True), (status.STALLED_SECONDS - 0.1, False), (2.1, False), (1.0, True)):
            clock.now += seconds
            line.say(STEPS[1]) if heard else line.tick()
            stream.feed(err.getvalue())
            err.seek(err.truncate(0))
            shown.append(screen.display[0].rstrip())
    assert shown == [
        "downloading, 3.1 of 9.6 GB…",
        "downloading, 3.1 of 9.6 GB · 9 s",
        "downloading, 3.1 of 9.6 GB · 12 s · no data for 12 s",
        "downloading, 3.1 of 9.6 GB · 13 s",
    ]


@pytest.mark.slow
def test_a_thread_of_its_own_keeps_the_time_and_a_narrower_window_shows_it_once() -> None:
    terminal = Terminal(60, 12)
    try:
        with StatusLine(terminal.err, "loading /a/very/long/path/of/a/model/of/mine") as line:
            line.say(STEPS[1])
            deadline = time.monotonic() + 20
            while not any("· 1 s" in row for row in terminal.lines()) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(terminal.lines()) == 1 and terminal.lines()[0].endswith(", 3.1 of 9.6 GB · 1 s")
            terminal.resize(40, 12)
            while not any("· 2 s" in row for row in terminal.lines()) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert re.fullmatch(r"loading /a/[^,]*…, 3.1 of 9.6 GB · 2 s", terminal.lines()[-1])
        assert terminal.lines() == []
    finally:
        terminal.close()


def test_nothing_is_drawn_by_the_clock_over_the_answer_to_a_ctrl_c_until_the_next_wait() -> None:
    """It was on the screen for a quarter of a second, amid a pass of a minute."""
    ticks = threading.Semaphore(0)
    for _ in range(2):
        with ticking(ticks.release, threading.RLock(), 0.001):
            assert ticks.acquire(timeout=20)
            answer_press(1, io.StringIO(), plain=False, quiet=True)
            assert ticks.acquire(timeout=20)  # nothing was said
            answered.set()
            while ticks.acquire(timeout=0.1):
                pass  # one was under way


def piped(seconds: tuple[float, ...], failure: type[Exception] | None = None, **options: object) -> str:
    err, clock = io.StringIO(), Clock()
    try:
        with StatusLine(err, "loading qc", clock=clock, **options) as line:
            for passed in seconds:
                clock.now += passed
                line.say(STEPS[1])
            if failure:
                raise failure
    except ValueError:
        assert failure
    return err.getvalue()


def test_in_a_pipe_it_is_one_line_at_its_start_and_one_at_its_end_and_none_of_what_is_short() -> None:
    both = "loading qc, 9.6 GB…\nloading qc: done in 34 s\n"
    assert piped((1.0, 1.5)) == piped((30.0, 4.5), shown=False) == ""
    assert piped((3.0, 29.0, 2.5)) == piped((30.0, 4.5)) == both
    assert piped((2.0,), patience=0.0) == "loading qc…\n"  # a person at a terminal that cannot draw
    assert piped((30.0,)) == ""  # libraries that start slowly are no news
    assert piped((1.0, 30.0), ValueError) == "loading qc, 9.6 GB…\n"  # the error's own lines are its end


READS = [START, *(Reading("target", read, 1234) for read in (512, 1024)), Prefill(1234, 0, 5.0)]


def test_without_a_panel_the_prompt_that_is_read_has_such_a_row_until_the_first_token(drawn) -> None:
    screen, err, stream = drawn(60)
    out, seen = io.StringIO(), []
    display = PlainDisplay(out, err)
    for event in [*READS, Reading("draft", 512, 1234), *script()[2:4]]:
        display.handle(event)
        stream.feed(err.getvalue().replace("\n", "\r\n"))
        err.seek(err.truncate(0))
        seen.append(screen.display[0].rstrip())
    assert seen == [
        "reading the prompt, 1 234 tokens…",
        "reading the prompt, 512 of 1 234 tokens…",
        *["reading the prompt, 1 024 of 1 234 tokens…"] * 2,
        "the draft reads the prompt, 512 of 1 234 tokens…",
        *["", ""],
    ]
    assert out.getvalue() and not screen.cursor.hidden
    display.handle(Reading("draft", 512, 1234))  # amid the answer: it is not to be broken
    assert err.getvalue() == ""


@pytest.mark.slow
def test_in_the_panel_the_time_goes_on_between_two_chunks() -> None:
    terminal = Terminal(60, 24)
    display = PanelDisplay(terminal.out, terminal.err)
    try:
        for event in READS[:2]:
            display.handle(event)
        deadline = time.monotonic() + 20
        while not any("512 of 1 234 tokens · 2 s" in row for row in terminal.lines()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert re.search(r"│ reading the prompt, 512 of 1 234 tokens · 2 s *│", "\n".join(terminal.lines()))
        for event in [*READS[2:], *script()[2:]]:
            display.handle(event)
        assert not [thread for thread in threading.enumerate() if thread.name == "ticks"]
    finally:
        terminal.close()
