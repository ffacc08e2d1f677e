"""`specdec audit`: its list of K, its table and its exit code; each result is named without colour."""

import io

import pytest

from specdec_cli.apps.audit.command import parse_ks
from specdec_cli.apps.audit.screen import print_audit
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import MAX_K
from specdec_cli.measure.divergence import Audit, Divergence, Finding, Token
from specdec_cli.measure.rounding import Changes, LeadChange, Rounding, SeveralRows


def test_a_list_of_k_comes_back_in_order_and_each_once():
    assert parse_ks(" 4 , auto,0,4") == (4, "auto", 0)
    for text in ("", "1,,2", "x", str(MAX_K + 1), "-1"):
        with pytest.raises(UsageError):
            parse_ks(text)


@pytest.fixture
def arguments(tiny_pair, tmp_path):
    target, draft = map(str, tiny_pair)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("def f(\n")
    return ["audit", "--target", target, "--draft", draft, "--raw", "-n", "8", "-k", "3", "--prompts", str(prompts)]


def test_a_lossless_pair_gets_a_table_on_stdout_and_exits_0(specdec, arguments):
    code, out, err = specdec(*arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["prompt", "rule", "accepted", "tokens", "against", "plain", "decoding"]
    assert out.count("identical") >= 2 and max(map(len, out.splitlines())) <= 80


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
