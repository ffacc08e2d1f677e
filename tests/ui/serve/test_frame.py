"""The server's panel as rows: whole at the usual widths, one line on small screens, and no word of anybody's."""

from dataclasses import replace

import pytest

from fakes.desk_status import BUSY, IDLE, READS, WAITS, answering, rounds
from specdec_cli.serve.status import JobStatus, SchedulerStatus
from specdec_cli.ui.serve.panel import frame_rows

URL = "http://127.0.0.1:8040"
AT_80 = """\
╭─ demo · http://127.0.0.1:8040 ────────────────────────────── 2 run, 1 waits ─╮
│ request                   read   reused   tokens   tok/s   accepted     time │
│ chat/completions           184    1 020       10     118       50 %      3 s │
│ rounds   ✓✓✓ 4   ✓✓✗ 3   ✓✗ 2   ✗ 1   – 1                tokens per pass 2.0 │
│ messages          ━━━━━━━━━━━━───────────────────────  reads 4 096 of 12 000 │
│  1. responses         waits 3 s, 812 tokens                                  │
├──────────────────────────────────────────────────── 1 failed · 2 left early ─┤
│ all 41                   8 120   31 244    3 402      97       61 %          │
│ accepted 1 █ 90   2 ▅ 60   3 ▃ 33 %                    by place in the draft │
├─ 2 of 16 conversations kept ─────────────── ──────────── 26.9 MB of 12.0 GB ─┤
│ ●   1 332 tokens 24.1 MB  in use      ○     185 tokens  2.1 MB    12 s       │
│ ◌      57 shared  700 kB  50 min                                             │
╰──────────────────────────────── ✓ accepted   ✗ rejected   – nothing drafted ─╯""".splitlines()


def drawn(status=BUSY, width=80, height=24, least=0):
    return [row.plain for row in frame_rows(status, "demo", URL, width, height, least)]


def test_a_busy_server_at_80_columns():
    assert drawn() == AT_80


def test_an_idle_server_says_so():
    lines = drawn(IDLE)
    assert lines[0].endswith(" idle ─╮") and "no request runs" in lines[2] and "nothing was drafted so far" in lines[5]
    assert "models let go until a request comes ─╮" in drawn(replace(IDLE, loaded=False))[0]
    assert "loading the models… ─╮" in drawn(replace(IDLE, loaded=False, running=(WAITS,)))[0]


CROWD = replace(
    BUSY,
    running=tuple(answering(seconds=float(age)) for age in range(9, 0, -1)),
    waiting=tuple(replace(WAITS, position=place) for place in range(16)),
    conversations=BUSY.conversations * 6,
)


@pytest.mark.parametrize("status", [BUSY, IDLE, CROWD], ids=["busy", "idle", "crowd"])
@pytest.mark.parametrize("width", [1, 20, 55, 56, 60, 80, 97, 120, 200])
def test_no_row_is_too_wide_and_no_frame_too_tall(status, width):
    for height in range(3, 50):
        rows = frame_rows(status, "demo", URL, width, height, 20)
        assert all(row.cell_len <= width for row in rows)
        assert len({row.cell_len for row in rows}) == 1 and len(rows) <= max(height - 2, 1)
        assert (len(rows) == 1) == (height < 12 or width < 56)


def test_a_small_screen_gets_one_line():
    assert drawn(height=11) == ["demo · 2 run, 1 waits · 118 tok/s · 61 % accepted · 41 requests done"]
    assert drawn(height=2) == []


def test_of_many_requests_the_oldest_are_shown_and_the_rest_counted():
    lines = drawn(CROWD, height=16)
    assert sum("chat/completions" in line for line in lines) == 5 and "and 20 requests more" in "\n".join(lines)


def test_where_not_all_rounds_fit_those_of_the_newest_request_are_shown():
    old, new = answering(seconds=9.0, rounds=rounds(0, 0)), answering(seconds=1.0, rounds=rounds(3, 3))
    lines = drawn(SchedulerStatus(True, (old, new)), height=14)
    assert sum("rounds" in line for line in lines) == 2
    lines = drawn(SchedulerStatus(True, (old, new)), height=13)
    assert [line for line in lines if "rounds" in line] == [lines[4]] and "✓✓✓ 4" in lines[4]


def test_what_reads_says_how_far_and_who():
    assert (
        "draft reads 4 096 of 12 000"
        in drawn(replace(BUSY, running=(replace(READS, reading=replace(READS.reading, reader="draft")),)))[2]
    )
    assert "reads 12 000 tokens…" in drawn(replace(BUSY, running=(replace(READS, reading=None),)))[2]


def test_no_word_of_an_answer_is_drawn_and_nothing_foreign_acts_on_the_terminal():
    assert "secret" not in "\n".join(drawn())
    evil = JobStatus("chat\x1b[2Jcompletions", 0, 12, 1.0)
    rows = frame_rows(replace(BUSY, running=(evil,), waiting=(evil,)), "de\x1b]0;mo", URL, 80, 24)
    assert not any("\x1b" in row.plain for row in rows)


def test_the_pair_that_took_the_place_of_the_first_is_named():
    assert "other" in drawn(replace(BUSY, pair="other"))[0]
