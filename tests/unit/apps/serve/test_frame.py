"""The server's panel as rows: whole at the usual widths, one line on small screens, and no word of anybody's."""

from dataclasses import replace

import pytest

from fakes.desk_status import BUSY, IDLE, READS, WAITS, answering, asked
from specdec_cli.apps.serve.panel import frame_rows

AT_80 = """\
╭─ demo · http://127.0.0.1:8040 ──────────────────────── 2 running, 1 waiting ─╮
│ request                                read  reused  tokens  tok/s  accepted │
│ chat/completions                        184   1 020      11     70      50 % │
│ rounds   ✓✓✓ 4   ✓✓✗ 3   ✓✗ 2   ✗ 1   – 1                tokens per pass 2.2 │
│ messages          ━━━━━━━━━━━━───────────────────────  reads 4 096 of 12 000 │
│ and 1 request more in the queue                                              │
├──────────────────────────────────────────────────── 1 failed · 2 left early ─┤
│ all 41                                8 120  31 244   3 402     97      61 % │
│ accepted by position 90 60 33 %                                              │
├─ 2 of 16 conversations kept ──────────────────────────── 26.9 MB of 12.0 GB ─┤
╰──────────────────────────────── ✓ accepted   ✗ rejected   – nothing drafted ─╯""".splitlines()
CROWD = replace(BUSY, running=tuple(answering(float(age)) for age in range(9)), waiting=(WAITS,) * 16)


def drawn(status=BUSY, width=80, height=24, least=0):
    return [row.plain for row in frame_rows(status, "demo", "http://127.0.0.1:8040", width, height, least)]


def test_a_busy_server_at_80_columns():
    assert drawn() == AT_80


def test_an_idle_server_says_so_and_where_there_is_another_pair_which():
    lines = drawn(IDLE)
    assert lines[0].endswith(" idle ─╮") and "no requests running" in lines[2]
    assert "models unloaded until the next request ─╮" in drawn(replace(IDLE, loaded=False))[0]
    assert "loading the models… ─╮" in drawn(replace(IDLE, loaded=False, running=(WAITS,), pair="other"))[0]
    assert "other · http" in drawn(replace(IDLE, pair="other"))[0]
    assert "memory 95 %" in drawn(replace(BUSY, warning="memory 95 %"))[-1]


@pytest.mark.parametrize("status", [BUSY, IDLE, CROWD], ids=["busy", "idle", "crowd"])
def test_no_row_is_too_wide_and_no_frame_too_tall(status):
    for width in (1, 20, 65, 66, 80, 97, 120, 200):
        for height in range(3, 40):
            rows = frame_rows(status, "demo", "http://127.0.0.1:8040", width, height, 20)
            assert all(row.cell_len <= width for row in rows) and len(rows) <= max(height - 2, 1)
            assert (len(rows) == 1) == (height < 12 or width < 66)


def test_a_small_screen_gets_one_line():
    assert drawn(height=11) == ["demo · 2 running, 1 waiting · 61 % accepted · 41 requests done"]
    assert drawn(height=2) == []


def test_of_many_requests_the_oldest_are_shown_without_their_rounds():
    lines = drawn(CROWD, height=16)
    assert sum("chat/completions" in line for line in lines) == 6 and not any("rounds" in line for line in lines)


def test_what_reads_says_how_far_and_who():
    draft = asked("messages", 12_000, 1.0, replace(READS.reading, reader="draft"))
    assert "draft reads 4 096 of 12 000" in drawn(replace(BUSY, running=(draft,)))[2]
    assert "reads 812 tokens, 3 s" in drawn(replace(BUSY, running=(WAITS,)))[2]


def test_no_word_of_an_answer_is_drawn_and_nothing_foreign_acts_on_the_terminal():
    assert "secret" not in "\n".join(drawn())
    evil = asked("chat\x1b[2Jcompletions", 12, 1.0)
    rows = frame_rows(replace(BUSY, running=(evil,), waiting=(evil,)), "de\x1b]0;mo", "http://x", 80, 24)
    assert not any("\x1b" in row.plain for row in rows)
