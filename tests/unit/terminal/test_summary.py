"""Claims about summaries, errors, boxes and tables, and about which display is chosen."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from fakes.ui_script import START, drafted, finish, folded
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.events import Failure, Finish, Prefill
from specdec_cli.core.kinds import FORCED, UNTRIED
from specdec_cli.terminal.display import print_error
from specdec_cli.terminal.summary import columns, error_lines, summary
from specdec_cli.terminal.terminal import make_console

FINDINGS = [("chip", "Apple M4", "fast"), ("memory", "24.0 GB", ""), ("path", "/a\x1b[2Jb", "x")]


@pytest.fixture(autouse=True)
def _width_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


COUNTS = "14 tokens in 5 passes · 283 tok/s"
ACCEPTED = "accepted 64 % of drafted"


def lines(**changes: object) -> list[str]:
    """The summary of the scripted reply, with these changes to its Start, its `stats`, or the options of `summary`."""
    seconds = changes.pop("plain_step_seconds", 0.012)
    ended = finish(str(changes.pop("reason", "stop")), seconds)
    ended = replace(ended, stats={**ended.stats, **changes.pop("stats", {})})
    options = {name: changes.pop(name) for name in ("width", "below_panel", "verbose") if name in changes}
    return [line.plain for line in summary(replace(START, **changes), ended, **options)]


BOTH = {"machine_bytes": (1_200_000_000, 1_200_100_000)}
PARKED = "parked: 1.2 tokens a round, in the time of 1.6 plain ones"
GAIN = "3.39× faster (3.08–3.73)"
WHOLE = f"{COUNTS} · {GAIN} · {ACCEPTED}"
UNDRAFTED = {"plain_step_seconds": None}
LOOPED = "stopped: the answer was repeating itself · specdec config set stop_repetition 0 turns this off"
# What changes of the reply or of the display, and the lines that are told.
TOLD = {
    # The bug: four lines after every piped run, and "47 target passes instead of 100".
    "a gain": ({}, [WHOLE]),
    "a loss": ({"plain_step_seconds": 0.002}, [f"{COUNTS} · slower, 0.57× (0.51–0.62) · {ACCEPTED}"]),
    "nothing to compare with": ({"plain_step_seconds": None}, [f"{COUNTS} · {ACCEPTED}"]),
    "two machines": (BOTH, [WHOLE, "2 machines, 1.2 GB on each"]),
    "three machines": (
        {"machine_bytes": (1_200_000_000, 800_000_000, 1)},
        [WHOLE, "3 machines, 1.2 GB + 800 MB + 1 B"],
    ),
    "below a panel": (BOTH | {"below_panel": True}, []),
    "below a panel, cut": ({"below_panel": True, "reason": "length"}, ["stopped at --max-tokens 100"]),
    "80 columns": ({"width": 80}, [f"{COUNTS} · {GAIN}"]),
    "60 columns, cut": ({"width": 60, "reason": "length"}, ["14 tokens in 5 passes · stopped at --max-tokens 100"]),
    "40 columns, cut": ({"width": 40, "reason": "length"}, ["stopped at --max-tokens 100"]),
    "10 columns": ({"width": 10}, ["14 tokens in 5 passes"]),
    # The bug: "a plain step is being measured" after the end, "so few tokens" beside 60 % accepted.
    "nothing drafted": (UNDRAFTED | {"stats": {"draft_n": 0, "why": ""}}, [COUNTS]),
    "too short": (
        UNDRAFTED | {"stats": {"draft_n": 0, "why": UNTRIED}},
        [f"{COUNTS} · 14 tokens are too few to try drafting"],
    ),
    "parked": (UNDRAFTED | {"stats": {"draft_n": 0, "why": PARKED}}, [f"{COUNTS} · {PARKED}"]),
    "drafted after all": ({"stats": {"why": UNTRIED}}, [WHOLE]),
    "cut": ({"reason": "length"}, [f"{WHOLE} · stopped at --max-tokens 100"]),
    "a full context": (
        {"reason": "length", "prompt_tokens": 1000, "max_tokens": 24, "context_limit": 1024},
        [f"{WHOLE} · the context of 1024 tokens is full"],
    ),
    "interrupted": ({"reason": "interrupted"}, [f"{WHOLE} · interrupted: the text above is partial"]),
    "a loop": ({"reason": "repetition"}, [f"{WHOLE} · {LOOPED}"]),
}


@pytest.mark.parametrize("reply", TOLD)
def test_a_reply_is_summed_up_in_one_line_and_why_it_ended_is_left_out_last(reply: str) -> None:
    changes, told = TOLD[reply]
    assert lines(**changes) == told


def test_what_a_round_costs_and_where_drafting_pays_is_said_on_request() -> None:
    assert lines(verbose=True)[1:] == [
        "wrote 14 tokens at 283 tok/s · a round takes the time of 1.0 plain tokens (draft 0.2 + verify 0.8) "
        "and yields 3.2 tokens"
        " · pays from ≈ 35 % (30–42) accepted"
    ]
    assert lines(below_panel=True, verbose=True) == lines(verbose=True)[1:]
    slower = "a round takes the time of 5.8 plain tokens (draft 1.0 + verify 4.8) and yields 3.2 tokens"
    known = {"plain_step_seconds": 0.002, "verbose": True, "width": 80}
    assert lines(**known)[1:3] == ["wrote 14 tokens at 283 tok/s", slower]
    assert lines(**known)[3:] == ["pays from ≈ 35 % (30–42) accepted · -k auto drafts only where it pays"]
    assert lines(**known, k="auto")[3:] == ["pays from ≈ 35 % (30–42) accepted · K 4 mostly, plain in 1 of 5 rounds"]
    assert lines(**known, device="cpu")[4:] == ["this is a CPU, which rarely gains: -k 0 decodes plainly"]


@pytest.mark.parametrize(
    "error", [DoesNotFit("14 GB\x1b[2J\nof 8", "ask\x9b5m less"), Failure("14 GB\nof 8", "ask less", 5)]
)
def test_an_error_is_two_lines_without_control_codes(error: DoesNotFit | Failure) -> None:
    assert error_lines(error).plain == "error: 14 GB of 8\nhint: ask less"


def test_a_long_error_stays_two_lines_in_a_pipe_and_carries_no_escape() -> None:
    err = io.StringIO()
    print_error(err, DoesNotFit("x" * 200 + "\x1b]0;owned\x07", "y z " * 50))
    assert err.getvalue() == "error: " + "x" * 200 + "\nhint: " + ("y z " * 50).strip() + "\n"


def test_columns_are_aligned_and_filtered() -> None:
    stream = io.StringIO()
    make_console(stream, plain=True).print(columns(FINDINGS))
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
    assert "3 tokens forced by the constraint" in said
    assert "stopped at --max-tokens 5 · the JSON is incomplete" in said
    assert "no effect, unknown to JSON Schema: nullable" in said
    line = summary(start, Finish("length", "x", (), "", stats, complete=False), 40)[0].plain
    assert line.startswith("stopped at --max-tokens 5 · the JSON is incomplete · no effect")
    said = "\n".join(text.plain for text in summary(start, Finish("stop", "x", (), "", stats, complete=True)))
    assert "incomplete" not in said


def test_in_a_chat_it_says_how_long_the_prompt_was_and_how_much_of_it_was_in_the_cache() -> None:
    said = summary(START, finish(), None, Prefill(1234, 1200, 0.1), tells_read=True)[0].plain
    assert said.endswith(" · prompt 1 234 tokens, 1 200 from cache")
    assert "read" not in summary(START, finish(), 80, Prefill(1234, 1200, 0.1), tells_read=True)[0].plain
