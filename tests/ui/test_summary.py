"""Claims about summaries, errors, boxes and tables, and about which display is chosen."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from fakes.ui_script import START, Terminal, drafted, finish, folded
from specdec_cli.errors import DoesNotFit
from specdec_cli.events import Failure, Finish
from specdec_cli.kinds import FORCED
from specdec_cli.ui.display import (
    print_demo_box,
    print_error,
)
from specdec_cli.ui.summary import closing_line, doctor_table, error_lines, summary
from specdec_cli.ui.terminal import make_console

FINDINGS = [("chip", "Apple M4", "fast"), ("memory", "24.0 GB", ""), ("path", "/a\x1b[2Jb", "x")]


@pytest.fixture(autouse=True)
def _width_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def lines(**changes: object) -> list[str]:
    """The summary of the scripted reply, with these changes to its Start."""
    seconds = changes.pop("plain_step_seconds", 0.012)
    width = changes.pop("width", 80)
    ended = finish(str(changes.pop("reason", "stop")), seconds)
    return [line.plain for line in summary(replace(START, **changes), ended, width)]


def test_a_faster_reply_says_what_a_round_costs_and_yields() -> None:
    assert lines() == [
        "14 tokens in 5 target passes instead of 14 · 283 tok/s · ≈ 3.4× faster (3.1–3.7)",
        "accepted 64 % of drafted, pays from 35 %",
        "a round costs 1.0 plain steps (draft 0.2 + verify 0.8) and yields 3.2 tokens",
    ]


def test_a_slower_reply_says_so_and_names_the_remedy() -> None:
    assert lines(plain_step_seconds=0.002) == [
        "14 tokens in 5 target passes instead of 14 · 283 tok/s",
        "≈ 0.6× as fast (0.5–0.6) · accepted 64 % of drafted, pays from 35 %",
        "a round costs 5.8 plain steps (draft 1.0 + verify 4.8) and yields 3.2 tokens",
        "-k auto drafts only where it pays",
    ]
    assert lines(plain_step_seconds=0.002, k="auto")[3:] == ["K 4 mostly"]
    assert lines(plain_step_seconds=0.002, device="cpu")[3:] == [
        "this is a CPU, which rarely gains: -k 0 decodes plainly"
    ]


def closing(width: int, reason: str = "stop") -> str:
    """The line below a panel."""
    return closing_line(START, finish(reason), width).plain


def test_below_a_panel_is_one_line_with_what_fits_and_why_the_reply_ended() -> None:
    counts = "14 tokens in 5 target passes instead of 14"
    assert closing(200) == " · ".join(lines(width=200)[0].split(" · "))
    assert closing(80) == f"{counts} · 283 tok/s · ≈ 3.4× faster (3.1–3.7)"
    assert closing(60) == f"{counts} · 283 tok/s"
    assert closing(80, "length") == f"{counts} · stopped at --max-tokens 100"
    assert closing(60, "length") == "stopped at --max-tokens 100"
    assert closing(20) == counts


def test_an_answer_cut_by_the_context_says_so_instead_of_max_tokens() -> None:
    start = replace(START, prompt_tokens=1000, max_tokens=24, context_limit=1024)
    assert [line.plain for line in summary(start, finish("length"))][-1] == "the context of 1024 tokens is full"


def test_a_reply_that_saved_no_pass_says_so() -> None:
    ended = finish(plain_step_seconds=None)
    stats = {**ended.stats, "target_passes": 14, "draft_n_accepted": 0, "draft_acceptance_rate": 0.0}
    shown = summary(START, replace(ended, stats={**stats, "judged_acceptance_rate": 0.0}))
    assert [line.plain for line in shown] == [
        "14 tokens in 14 target passes, none saved · 283 tok/s · accepted 0 % of drafted",
    ]


def test_an_unmeasured_plain_step_claims_no_speed_up() -> None:
    assert lines(plain_step_seconds=None) == [
        "14 tokens in 5 target passes instead of 14 · 283 tok/s",
        "accepted 64 % of drafted",
    ]


def test_statements_share_lines_as_far_as_they_fit() -> None:
    assert lines(plain_step_seconds=None, width=120) == [
        "14 tokens in 5 target passes instead of 14 · 283 tok/s · accepted 64 % of drafted"
    ]


def test_plain_decoding_is_not_compared_with_itself() -> None:
    ended = finish()
    stats = {**ended.stats, "draft_n": 0, "draft_acceptance_rate": None, "judged_acceptance_rate": None}
    shown = summary(START, replace(ended, stats=stats))
    assert [line.plain for line in shown] == ["14 tokens in 5 target passes, nothing drafted · 283 tok/s"]


def test_a_reply_cut_short_says_why() -> None:
    assert lines(reason="length")[-1] == "stopped at --max-tokens 100"
    assert lines(reason="interrupted")[-1] == "interrupted: the text above is partial"
    assert lines(reason="repetition")[-1] == "stopped: the answer had become a loop · --stop-repetition 0 goes on"


@pytest.mark.parametrize(
    "error", [DoesNotFit("14 GB\x1b[2J\nof 8", "ask\x9b5m less"), Failure("14 GB\nof 8", "ask less", 5)]
)
def test_an_error_is_two_lines_without_control_codes(error: DoesNotFit | Failure) -> None:
    assert error_lines(error).plain == "error: 14 GB of 8\nhint: ask less"


def test_a_long_error_stays_two_lines_in_a_pipe_and_carries_no_escape() -> None:
    err = io.StringIO()
    print_error(err, DoesNotFit("x" * 200 + "\x1b]0;owned\x07", "y z " * 50))
    assert err.getvalue() == "error: " + "x" * 200 + "\nhint: " + ("y z " * 50).strip() + "\n"


def test_an_error_on_a_terminal_sends_only_our_own_codes() -> None:
    terminal = Terminal(80, 24)
    try:
        print_error(terminal.err, DoesNotFit("a\x1b[2Jb[red]c", "d\x1b]52;c;x\x07"))
        assert terminal.lines() == ["error: ab[red]c", "hint: d"]
        assert terminal.written.count(b"\x1b[2J") == terminal.written.count(b"\x1b]") == 0
        assert b"\x1b[1;31merror:" in terminal.written
    finally:
        terminal.close()


def test_the_demo_box_says_what_the_pair_is_in_six_lines() -> None:
    err = io.StringIO()
    print_demo_box(err, plain=True)
    assert err.getvalue() == (
        "╭─ demo pair ──────────────────────────────────────────────────────────────────╮\n"
        "│ It ships inside specdec: two small models, trained on Python's standard      │\n"
        "│ library. It completes Python code, and answers anything else with nonsense.  │\n"
        "│ For a real pair that suits this machine:                                     │\n"
        "│ next  specdec pull                                                           │\n"
        "╰──────────────────────────────────────────────────────────────────────────────╯\n"
    )


def test_the_doctor_table_is_aligned_and_filtered() -> None:
    stream = io.StringIO()
    make_console(stream, plain=True).print(doctor_table(FINDINGS))
    assert [line.rstrip() for line in stream.getvalue().splitlines()] == [
        "chip    Apple M4  fast",
        "memory  24.0 GB",
        "path    /ab       x",
    ]


def test_a_summary_says_what_the_shape_forced_and_what_the_answer_lacks():
    rounds = (drafted(0, [], 0, "{"), drafted(1, ['"', "name", '":'], 3, ' "', FORCED.name))
    start = replace(START, constraint="schema", unenforced=("nullable",), max_tokens=5)
    stats = folded(rounds, start).stats.to_dict()
    said = "\n".join(text.plain for text in summary(start, Finish("length", "x", (), "", stats, complete=False)))
    assert "3 tokens forced by the shape" in said
    assert "stopped at --max-tokens 5 · the JSON is incomplete" in said
    assert "of no effect, since unknown in a schema: nullable" in said
    line = closing_line(start, Finish("length", "x", (), "", stats, complete=False), 40).plain
    assert line.startswith("stopped at --max-tokens 5 · the JSON is incomplete · of no effect")
    said = "\n".join(text.plain for text in summary(start, Finish("stop", "x", (), "", stats, complete=True)))
    assert "incomplete" not in said
