"""A round as a row of the panel."""

from __future__ import annotations

from fakes.ui_script import drafted, folded
from specdec_cli.ui.panel.frame import render


def test_a_long_row_keeps_the_count_the_rejected_and_the_next_token() -> None:
    long = drafted(7, [" accepted", " words", " without", " end", " rejected", " lost", " too"], 4, " corrected")
    rows = [render(folded((long,)), width, 24).plain.splitlines()[1] for width in (120, 80, 60, 40)]
    assert rows[0].startswith("│  7  ✓␣accepted ✓␣words ✓␣without ✓␣end ✗␣rejected ·␣lost ·␣too ➜␣corrected   ")
    assert rows[1] == "│  7  ✓… ✓␣wor… ✓␣wit… ✓␣end ✗␣rejected ·… ➜␣correct…    4 of 7 · 2.1 + 9.4 ms │"
    assert rows[2] == "│  7  ✓… ✗␣rejected ·… ➜␣correct…    4 of 7 · 2.1 + 9.4 ms │"
    assert rows[3] == "│  7  ✓… ✗␣rej… ·… ➜␣cor…       4 of 7 │"
