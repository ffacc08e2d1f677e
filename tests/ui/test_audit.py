"""The audit's table at width 80, each result named without colour."""

import io

from specdec_cli.audit.divergence import Audit, Divergence, Finding, Limit, Token
from specdec_cli.ui.audit import print_audit


def drawn(monkeypatch, *findings):
    monkeypatch.setenv("COLUMNS", "80")
    limit = Limit("bfloat16", 0.5)
    found = Audit("t", "d", "model", "bfloat16", "metal", "mlx-lm", 64, 0.8, 0, {}, limit, findings)
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
    assert rows[7].startswith("not lossless here: 1 of 3 answers diverge")


def test_k_has_a_column_only_where_there_are_several(monkeypatch):
    assert "  K  " not in drawn(monkeypatch, finding("a", None))[0]
    assert "  K  " in drawn(monkeypatch, finding("a", None), finding("a", None, 2))[0]


def test_no_control_code_of_a_token_reaches_the_terminal(monkeypatch):
    hostile = Divergence(0, Token(1, "\x1b[2J"), Token(2, "\x9b"), 9.0, 0.5)
    text = "".join(drawn(monkeypatch, finding("a\x1b]0;x\x07b", hostile)))
    assert not set("\x1b\x9b\x07") & set(text) and "␛[2J" in text
