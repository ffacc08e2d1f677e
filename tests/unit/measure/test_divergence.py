"""A difference and its judgement, and the verdict over all of them."""

from __future__ import annotations

import math

import pytest

from specdec_cli.core.errors import SpecdecError
from specdec_cli.measure.divergence import Audit, Divergence, Finding, Token
from specdec_cli.measure.rounding import Changes, LeadChange, Rounding, SeveralRows


def finding(gap=None):
    divergence = None if gap is None else Divergence(3, Token(1, "a"), Token(2, "b"), gap, 0.0)
    return Finding("code", "greedy", 4, 8, 6, 20, divergence)


def audit(change, *findings, expected=0.0, given=None):
    """`change` is every change of ours; the machine's are all 0.05."""
    places = [(at, at % 5) for at in range(400)]
    machine, ours = (Changes("g", [LeadChange("code", "whole", *at, size) for at in places]) for size in (0.05, change))
    rounding = Rounding("bfloat16", 200, [SeveralRows(5, machine, ours, "bfloat16", 2.0)], given)
    judged = [one.with_limit(rounding.limit()) for one in findings]
    where = ("t", "d", "model", "bfloat16", "cpu", "mlx-lm")
    return Audit(*where, 64, 0.0, 0, {}, rounding, judged, near_ties_expected=expected)


def test_a_difference_is_a_near_tie_up_to_the_limit_that_it_is_judged_with():
    assert [finding(0.25).with_limit(limit).result for limit in (0.2, 0.25)] == ["diverged", "near-tie"]
    assert finding().with_limit(0.2).result == "identical"
    assert finding(math.inf).with_limit(math.inf).result == "diverged"


def test_a_change_that_rounding_does_not_explain_is_a_loss_though_every_answer_is_identical():
    found = audit(0.5, finding())
    assert not found.lossless and found.count("identical") == 1
    assert found.verdict.startswith("not lossless here: 1 of 1 answers are identical; this is more than rounding: ")
    with pytest.raises(SpecdecError, match=r"more than rounding: passes of 5 rows.*explains at most 0\.1") as refused:
        found.require_lossless()
    assert "specdec audit --json" in refused.value.hint
    assert audit(0.06, finding()).lossless


def test_near_ties_of_most_answers_are_a_doubt_and_not_lossless():
    near, same = finding(0.05), finding()
    doubt = audit(0.0, near, near, same, expected=2.0)
    assert doubt.lossless is None and doubt.to_dict()["lossless"] is None
    assert doubt.verdict.startswith(
        "in doubt here: 1 of 3 answers are identical, 2 up to a near-tie, so rounding may hide a fault"
    )
    doubt.require_lossless()
    assert audit(0.0, near, same, expected=2.0).lossless is True


def test_more_near_ties_than_the_measured_changes_predict_are_no_rounding():
    eight = [finding(0.05)] * 8
    found = audit(0.0, *eight, expected=0.3)
    assert found.lossless is False and found.count("near-tie") == 8
    assert "and rounding explains 5 at most" in found.verdict
    with pytest.raises(SpecdecError, match="8 of 8 answers differ at a near-tie, and rounding explains 5 at most"):
        found.require_lossless()
    assert audit(0.0, *eight, expected=4.0).lossless is None
    # A limit given by hand says what a near-tie is, however many there are.
    assert audit(0.0, *eight, given=0.1).lossless is None


def test_a_divergence_is_named_before_a_fault():
    with pytest.raises(SpecdecError, match='1 of 1 answers diverge; first code, greedy: token 4 is 2 "b"'):
        audit(0.5, finding(0.25)).require_lossless()
    assert audit(0.06, finding(0.06)).count("near-tie") == 1
