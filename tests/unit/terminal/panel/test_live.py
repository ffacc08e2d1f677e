"""Claims about the live panel, on a pseudo-terminal with a screen behind it and on a terminal that folds rows."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.racing import Clock
from fakes.ui_script import ANSWER, PREFILL, ROUNDS, START, Terminal, drafted, finish, script
from specdec_cli.core.events import Event
from specdec_cli.terminal.panel.live import PanelDisplay
from specdec_cli.terminal.suspension import held

pytestmark = pytest.mark.slow  # a pseudo-terminal for each

FINAL = """\
def read_lines(path):
    with        open(path) as handle
╭─ demo · K 4 · 14 tokens in 5 passes ────────────── 3.39× faster (3.08–3.73) ─╮
│   1                                         – def              plain  9.4 ms │
│   2  ✓␣read ✓_lines ✓( ✓path                ★ ):              4 of 4   12 ms │
│   3  ✓↵␣␣␣␣ ✓with ✗日本 ·␛[2J               ↳ ⇥open           2 of 4   12 ms │
│   4  ✓( ✓path ✓) ✗↵                         ↳ ␣as             3 of 4   12 ms │
│   5  ✗␣f ·:                                 ↳ ␣handle         0 of 2   12 ms │
├──────────────────────────────────────────────────────────────────────────────┤
│ accepted 64 % of drafted · by position 75 75 67 33 %               283 tok/s │
╰─ ✓ accepted   ✗ rejected   · not judged   ↳ correction   ★ bonus ────────────╯""".splitlines()


def panel(terminal: Terminal, step: float = 1.0) -> PanelDisplay:
    """A panel that refreshes with every event, unless the clock says otherwise."""
    return PanelDisplay(terminal.out, terminal.err, clock=Clock(step), name="demo")


def play(display: PanelDisplay, events: list[Event]) -> None:
    """Hands over all events."""
    for event in events:
        display.handle(event)


def test_a_long_answer_scrolls_and_is_never_repeated(terminal: Terminal) -> None:
    display = panel(terminal)
    words = [f"w{number}" for number in range(400)]
    play(display, [START, PREFILL, *(drafted(n, [], 0, f"{word} ") for n, word in enumerate(words)), finish()])
    display.close()
    rows = terminal.scrolled() + terminal.lines()
    edge = next(place for place, row in enumerate(rows) if row.startswith("╭"))
    assert " ".join(rows[:edge]).split() == words
    assert len(terminal.scrolled()) >= 10
    assert [row[0] for row in rows if row[0] in "╭╰"] == ["╭", "╰"]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux, a terminal that folds rows")
@pytest.mark.parametrize("columns", [64, 110])
def test_a_terminal_that_folds_rows_shows_one_panel_after_a_resize(tmp_path: Path, columns: int) -> None:
    """rich's Live leaves the upper half of the folded panel behind. The panel stands at the bottom, as after any reply
    of some length: with an empty half below it, tmux folds the upper rows into its history, out of anyone's reach."""
    code = f"""
import sys, time, pathlib
sys.path[:0] = {[str(Path(__file__).parents[3]), str(Path(__file__).parents[4])]!r}
from fakes import ui_script as u
from specdec_cli.terminal.panel.live import PanelDisplay
here = pathlib.Path({str(tmp_path)!r})
print(*range(30), sep="\\n", flush=True)
display = PanelDisplay(sys.stdout, sys.stderr, name="demo", closing=lambda *_: [])
for event in [u.START, u.PREFILL, *u.ROUNDS[:3]]:
    display.handle(event); time.sleep(0.11)
(here / "half").touch()
while not (here / "go").exists(): time.sleep(0.02)
for event in [*u.ROUNDS[3:], u.finish()]:
    display.handle(event); time.sleep(0.11)
display.close(); (here / "done").touch(); time.sleep(20)
"""
    script_file = tmp_path / "script.py"
    script_file.write_text(code)

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def wait_for(name: str) -> None:
        deadline = time.monotonic() + 120
        while not (tmp_path / name).exists():
            assert time.monotonic() < deadline, tmux("capture-pane", "-p")
            time.sleep(0.02)

    run = f"env -u COLUMNS LC_ALL=C.UTF-8 {sys.executable} {script_file}"
    tmux("new-session", "-d", "-x", "80", "-y", "24", run)
    try:
        wait_for("half")
        tmux("resize-window", "-x", str(columns), "-y", "24")
        (tmp_path / "go").touch()
        wait_for("done")
        time.sleep(0.2)
        lines = tmux("capture-pane", "-p", "-S", "-").rstrip().split("\n")
        cursor = tmux("display-message", "-p", "#{cursor_flag}").strip()
    finally:
        tmux("kill-server")
    assert lines[:30] == [str(number) for number in range(30)]
    del lines[:30]
    assert lines[:2] == FINAL[:2]
    assert sum("╭" in line for line in lines) == sum("╰" in line for line in lines) == 1
    assert lines[2].startswith("╭─ demo") and lines[-1].startswith("╰")
    assert cursor == "1"


def test_no_more_than_ten_refreshes_a_second(terminal: Terminal) -> None:
    display = panel(terminal, step=0.001)
    play(display, [START, PREFILL, *(drafted(n, [], 0, "x") for n in range(1000))])
    terminal.settle()
    refreshes = terminal.written.count(b"\x1b[?25l")
    assert 9 <= refreshes <= 11
    play(display, [finish()])
    rows = terminal.scrolled() + terminal.lines()
    assert "".join(row for row in rows if set(row) == {"x"}) == "x" * 1000


def test_after_ctrl_z_and_fg_the_panel_is_drawn_once_below_what_the_shell_wrote(terminal: Terminal) -> None:
    """The bug: it erased as many rows as it had drawn before, which were the shell's by then."""
    display = panel(terminal)
    play(display, [START, PREFILL, *ROUNDS[:3]])
    (one,) = held
    one.leave()
    assert terminal.lines() == ["def read_lines(path):"] and not terminal.screen.cursor.hidden
    terminal.out.write("[1]+  Stopped\r\n$ fg\r\nspecdec run\r\n")
    terminal.out.flush()
    one.resume()
    play(display, [ROUNDS[3]])
    terminal.settle()
    assert terminal.screen.cursor.hidden
    play(display, [*ROUNDS[4:], finish()])
    display.close()
    assert terminal.lines() == [FINAL[0], "[1]+  Stopped", "$ fg", "specdec run", *FINAL[1:]]


def test_closing_amid_a_reply_gives_the_terminal_back_once(terminal: Terminal) -> None:
    display = panel(terminal)
    play(display, [START, PREFILL, *ROUNDS[:2]])
    display.close()
    terminal.settle()
    written = terminal.written
    display.close()
    terminal.settle()
    assert terminal.written == written
    assert terminal.lines() == ["def read_lines(path):"]
    assert (terminal.screen.cursor.hidden, terminal.screen.cursor.y, terminal.screen.cursor.x) == (False, 1, 0)


def test_a_piped_answer_is_raw_and_the_panel_is_on_stderr_alone(terminal: Terminal) -> None:
    out = io.StringIO()
    display = PanelDisplay(out, terminal.err, clock=Clock(1.0), name="demo")
    play(display, script())
    display.close()
    assert out.getvalue() == ANSWER + "\n"
    assert terminal.lines() == FINAL[2:]
