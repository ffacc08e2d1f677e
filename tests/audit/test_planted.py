"""Errors of half a logit, planted in a loaded target, are reported as faults; without them the same audit passes.

The old limit, four epsilons of the largest logit, took every flip that they caused for a near-tie.
"""

from __future__ import annotations

import pytest

from fakes.drafting import open_session
from fakes.planted import after_rollbacks, in_kernels, in_rows, left_over, precise_folder
from specdec_cli.audit.audit import AuditPlan, run_audit
from specdec_cli.audit.prompts import AuditPrompt
from specdec_cli.errors import SpecdecError
from specdec_cli.pairs.pair import Pair

FEW = tuple(AuditPrompt(name, text) for name, text in [("code", "def f("), ("prose", "Every evening"), ("list", "1.")])
SIZE = 0.5
# (type, bits of the weights, gain of the logits)
PRECISIONS = [
    ("bfloat16", None, 2.2),
    ("bfloat16", 4, 1.0),
    pytest.param(("float16", None, 1.0), marks=pytest.mark.slow),
]


def opened(folder, dtype, bits, gain, draft_noise=0.05):
    made = (("target", 0.0), ("draft", draft_noise))
    folders = [precise_folder(folder / name, dtype, bits, noise, gain) for name, noise in made]
    return open_session(Pair("tiny", *map(str, folders)))


@pytest.fixture(params=PRECISIONS, ids=lambda values: "-".join(map(str, values)))
def session(request, tmp_path):
    return opened(tmp_path, *request.param)


def audited(session, **settings):
    plan = AuditPlan(FEW, **{"ks": (4,), "max_tokens": 32, "temperature": 0.0, "raw": True} | settings)
    return run_audit(session, plan, lambda *_: None)


def fault_of(found):
    assert not found.lossless
    with pytest.raises(SpecdecError):
        found.require_lossless()
    (fault,) = found.rounding.faults
    assert fault.group.largest.prompt in {prompt.name for prompt in FEW}
    return fault


def test_without_an_error_the_pair_is_lossless(session):
    found = audited(session)
    assert found.lossless and found.count("identical") == 3
    assert found.rounding.measured == 0.0 < found.rounding.noise.rms


def test_kernels_with_another_order_of_summation_are_lossless_up_to_near_ties(session):
    in_kernels(session)
    found = audited(session)
    assert found.lossless and 0.0 < found.rounding.measured < found.rounding.bounds.peak


def test_an_error_in_the_whole_pass_is_a_fault(session):
    in_rows(session, SIZE)
    fault = fault_of(audited(session))
    assert fault.group.name == "every row"
    assert abs(fault.group.largest.logits) == pytest.approx(SIZE, abs=0.07)


def test_an_error_in_one_row_is_a_fault_of_that_row(session):
    in_rows(session, SIZE, slice(2, 3))
    fault = fault_of(audited(session))
    assert fault.group.name == "row 3" and {one.row for one in fault.group.changes} == {2}


def test_an_error_in_the_pass_after_a_rollback_is_a_fault_of_rollbacks(session, monkeypatch):
    after_rollbacks(session, SIZE, monkeypatch)
    assert fault_of(audited(session)).group.name == "after every rollback"


def test_state_left_over_after_a_rejection_is_a_fault_of_rollbacks(session, monkeypatch):
    """A share of the first rejected value stays in the last one kept: at most positions far less than half a logit."""
    left_over(0.03, monkeypatch)
    found = audited(session)
    assert found.rounding.passes[0].all.rms < SIZE / 2
    assert fault_of(found).group.name.startswith("after ")


def test_the_old_limit_took_the_same_flips_for_near_ties(tmp_path):
    session = opened(tmp_path, *PRECISIONS[0])
    in_rows(session, SIZE)
    found = audited(session)
    old = 4 * 2.0**-7 * found.rounding.largest_logit
    gaps = [finding.divergence.gap for finding in found.findings if finding.divergence]
    assert gaps and all(gap <= SIZE < old for gap in gaps)
    assert found.count("near-tie") == 0 and found.count("diverged") == len(gaps)


def test_a_fault_is_one_though_no_token_flipped(tmp_path):
    """Only the last row is wrong, and no draft is right for long enough to need it."""
    session = opened(tmp_path, *PRECISIONS[0], draft_noise=0.5)
    in_rows(session, SIZE, slice(4, 5))
    found = audited(session)
    assert found.count("identical") == len(found.findings)
    assert found.verdict.startswith("not lossless here: passes of 5 rows differ")
    assert str(fault_of(found)).startswith("passes of 5 rows, row 5: a gap changes by 0.5 (")
