"""A difference and its judgement, and the verdict over all of them."""

from __future__ import annotations

import math

import pytest

from specdec_cli.audit.change import Change, SeveralRows
from specdec_cli.audit.divergence import Audit, Divergence, Finding, Token
from specdec_cli.audit.rounding import Noise, Rounding
from specdec_cli.errors import SpecdecError


def finding(gap=None):
    divergence = None if gap is None else Divergence(3, Token(1, "a"), Token(2, "b"), gap, 0.0)
    return Finding("code", "greedy", 4, 8, 6, 20, divergence)


def audit(change, *findings):
    passes = SeveralRows(5, [Change("code", "whole", at, at % 5, change) for at in range(400)])
    rounding = Rounding("bfloat16", 200, 20.0, Noise(0.05, 0.2), [passes])
    judged = [one.judged(rounding.limit()) for one in findings]
    return Audit("t", "d", "model", "bfloat16", "cpu", "mlx-lm", 64, 0.0, 0, {}, rounding, judged)


def test_a_difference_is_a_near_tie_up_to_the_limit_that_it_is_judged_with():
    assert [finding(0.25).judged(limit).result for limit in (0.2, 0.25)] == ["diverged", "near-tie"]
    assert finding().judged(0.2).result == "identical"
    assert finding(math.inf).judged(math.inf).result == "diverged"


def test_a_change_that_rounding_does_not_explain_is_a_loss_though_every_answer_is_identical():
    found = audit(0.5, finding())
    assert not found.lossless and found.count("identical") == 1
    assert found.verdict.startswith(
        "not lossless here: passes of 5 rows differ from those of 1 row by more than rounding; 1 of 1 answers"
    )
    with pytest.raises(SpecdecError, match=r"more than rounding: passes of 5 rows.*explains at most 0\.5") as refused:
        found.require_lossless()
    assert "specdec audit --json" in refused.value.hint
    assert audit(0.06, finding()).lossless


def test_a_divergence_is_named_before_a_fault():
    with pytest.raises(SpecdecError, match='1 of 1 answers diverge; first code, greedy: token 4 is 2 "b"'):
        audit(0.5, finding(0.25)).require_lossless()
    assert audit(0.06, finding(0.06)).count("near-tie") == 1
