"""The audit's table at width 80, each result named without colour."""

import io

from specdec_cli.apps.audit.screen import print_audit
from specdec_cli.measure.divergence import Audit, Divergence, Finding, Token
from specdec_cli.measure.rounding import Changes, LeadChange, Rounding, SeveralRows


def drawn(monkeypatch, *findings, change=0.05, given=0.5):
    monkeypatch.setenv("COLUMNS", "80")
    places = [(at, at % 5) for at in range(400)]
    machine, ours = (Changes("g", [LeadChange("code", "whole", *at, size) for at in places]) for size in (0.05, change))
    rounding = Rounding("bfloat16", 400, [SeveralRows(5, machine, ours, "bfloat16", 2.0)], given)
    found = Audit("t", "d", "model", "bfloat16", "metal", "mlx-lm", 64, 0.8, 0, {}, rounding, findings)
    out = io.StringIO()
    print_audit(out, found)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def finding(name, divergence, k=4):
    return Finding(name, "coupled", k, 40, 20, 30, divergence)


def test_each_result_is_named_with_its_place_gap_and_both_tokens(monkeypatch):
    near = Divergence(2, Token(1, "a"), Token(2, "\n"), 0.25, 0.5)
    wrong = Divergence(0, Token(1, "a"), None, 7.0, 0.5)
    rows = drawn(monkeypatch, finding("same", None), finding("near", near), finding("wrong", wrong))
    assert rows[0] == "prompt  rule     accepted  tokens  against plain decoding"
    assert rows[1] == "same    coupled     20/40      30  identical"
    assert "near-tie at token 3, gap 0.25 ≤ 0.5" in rows[2] and "plain a (1), specdec ↵ (2)" in rows[3]
    assert "DIVERGED at token 1, gap 7 > 0.5" in rows[4] and "specdec nothing" in rows[5]
    assert rows[12].startswith("not lossless here: 1 of 3 answers are identical, 1 up to a near-tie; 1 of 3")


def test_rounding_has_a_table_of_its_own_and_a_fault_a_name_and_a_sentence(monkeypatch):
    rows = drawn(monkeypatch, finding("same", None), given=None)
    assert rows[3:7] == [
        "change of a lead, in logits     measured  largest   rms",
        "mlx-lm, 5 rows against 1 row         400     0.05  0.05  the machine's",
        "specdec against mlx-lm, 5 rows       400     0.05  0.05  rounding",
        "rounding explains                            0.15   0.1",
    ]
    assert rows[8].startswith("lossless here: 1 of 1 answers are identical")
    wrong = drawn(monkeypatch, finding("same", None), change=-0.5, given=None)
    assert wrong[5] == "specdec against mlx-lm, 5 rows       400      0.5   0.5  FAULT"
    assert wrong[7].startswith("passes of 5 rows, without a rollback: a lead changes by 0.5 (code, token 1, row")
    assert wrong[11].startswith("not lossless here: 1 of 1 answers are identical; this is more than rounding")
    assert max(map(len, rows + wrong)) <= 80


def test_k_has_a_column_only_where_there_are_several(monkeypatch):
    assert "  K  " not in drawn(monkeypatch, finding("a", None))[0]
    assert "  K  " in drawn(monkeypatch, finding("a", None), finding("a", None, 2))[0]


def test_no_control_code_of_a_token_reaches_the_terminal(monkeypatch):
    hostile = Divergence(0, Token(1, "\x1b[2J"), Token(2, "\x9b"), 9.0, 0.5)
    text = "".join(drawn(monkeypatch, finding("a\x1b]0;x\x07b", hostile)))
    assert not set("\x1b\x9b\x07") & set(text) and "␛[2J" in text
