"""Whatever is printed fits the terminal, and nothing that it names acts on it. A new screen is a row."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from fakes.bench import sample_result
from specdec_cli.apps.audit.screen import print_audit
from specdec_cli.apps.bench.report import compare, reports
from specdec_cli.apps.bench.screen import print_bench, print_comparison
from specdec_cli.apps.pairs.screen import print_pairs
from specdec_cli.measure.divergence import Audit, Divergence, Finding, Token
from specdec_cli.measure.rounding import Changes, LeadChange, Rounding, SeveralRows
from specdec_cli.pairs.pair import Pair, PairRow
from specdec_cli.system.machine import MachineState
from specdec_cli.terminal.display import print_columns, print_line
from specdec_cli.terminal.terminal import make_console

EVIL = "a\x1b]0;title\x07\x9b2J\x1b[2Jname"
RESULT = sample_result(budget_seconds=120.0)
SETTINGS = replace(RESULT.settings, pair=EVIL, target=f"org/{EVIL}", prompts=EVIL)
MACHINE = replace(RESULT.environment, chip=EVIL, before=MachineState(EVIL, None, EVIL, None))
HOSTILE = replace(RESULT, settings=SETTINGS, environment=MACHINE)
LONG = Pair(f"rather-long-{EVIL}", "mlx-community/" + "t" * 45, "org/" + "d" * 40 + EVIL, source="yours")
ROWS = (
    PairRow(LONG, 4_340_000_000, True, True, True),
    PairRow(replace(LONG, source="packaged", note=EVIL), None, False, False, False, estimated_bytes=41_000_000_000),
)


def audit(out: io.StringIO) -> None:
    changes = Changes("g", [LeadChange("code", "whole", at, at % 5, 0.5) for at in range(400)])
    rounding = Rounding("bfloat16", 400, [SeveralRows(5, changes, changes, "bfloat16", 2.0)], None)
    wrong = Finding(EVIL, "coupled", 4, 40, 20, 30, Divergence(0, Token(1, EVIL), Token(2, "\x9b"), 9.0, 0.5))
    print_audit(out, Audit("t", "d", "model", "bfloat16", "metal", "mlx-lm", 64, 0.8, 0, {}, rounding, [wrong]))


SCREENS = {
    "a bench": lambda out: print_bench(make_console(out, plain=False), HOSTILE, reports(HOSTILE)),
    "two benches": lambda out: print_comparison(out, compare(RESULT, HOSTILE), ("a.json", f"{EVIL}.json")),
    "an audit": audit,
    "pairs": lambda out: print_pairs(out, ROWS, 16_000_000_000, True),
    "a line": lambda out: print_line(out, EVIL),
    "columns": lambda out: print_columns(out, [("chip", "Apple M4", "fast"), ("path", EVIL, "")]),
}


@pytest.mark.parametrize("width", [60, 76, 80, 120, 200])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_line_is_wider_than_the_terminal_and_no_control_code_reaches_it(monkeypatch, screen, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    SCREENS[screen](out)
    text = out.getvalue()
    assert "name" in text and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), ascii(text)
    assert max(map(cell_len, text.splitlines())) <= width
