"""What the machine's rounding explains of our changes, on invented ones; and the verdict over all differences."""

from __future__ import annotations

import json
import math
import random

import pytest

from specdec_cli.core.errors import SpecdecError
from specdec_cli.measure.divergence import Audit, Divergence, Finding, Token
from specdec_cli.measure.rounding import Changes, LeadChange, Rounding, SeveralRows, difference

READ = ("whole", "repeated", "rejected")


def group(size, rows=5, positions=64, seed=0):
    """Every reading of `positions` by every row; `size(random, reading, row)` -> a change."""
    draw = random.Random(seed)
    places = [(reading, at, row) for reading in READ for at in range(positions) for row in range(rows)]
    return Changes("g", [LeadChange("code", reading, at, row, size(draw, reading, row)) for reading, at, row in places])


def gauss(spread):
    return lambda draw, reading, row: draw.gauss(0.0, spread)


FINE = gauss(0.05)


def passes(ours, machine=FINE, rows=5, precision="bfloat16", positions=64, seed=0):
    groups = group(machine, rows, positions, seed + 1000), group(ours, rows, positions, seed)
    return SeveralRows(rows, *groups, precision, 8.0)


def measured(*found, given=None):
    return Rounding("bfloat16", 64, found, given)


def test_what_is_no_number_differs_infinitely_and_equal_infinities_do_not_differ():
    assert difference([1.5, 3.0], [1.0, 4.0]) == -1.0
    assert difference([math.inf], [math.inf]) == difference([], []) == 0.0
    for one, other in ((math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (-math.inf, 1.0)):
        assert difference([0.0, one], [0.0, other]) == math.inf


def test_the_limit_of_a_near_tie_is_the_largest_change_from_one_row_to_several():
    one, other = passes(gauss(0.0)), passes(gauss(0.04), gauss(0.07))
    rounding = measured(one, other)
    assert rounding.limit() == rounding.measured == other.machine.size + other.ours.size
    assert rounding.limit(0.5) == 2 * rounding.limit() and rounding.limit(1.0) == rounding.limit()
    assert not rounding.faults and "the largest change that rounding made here" in str(rounding)


def test_no_machine_is_believed_to_change_more_than_its_precision_rounds():
    wild = passes(gauss(0.0), gauss(2.0), precision="bfloat16")
    assert measured(wild).measured > measured(wild).limit() == 16 * 2.0**-7 * 8
    assert Rounding("float32", 64, [wild]).limit() == 1e-3


def test_where_nothing_changes_a_small_floor_is_left():
    rounding = measured(passes(gauss(0.0), gauss(0.0)))
    assert (rounding.limit(), rounding.measured, rounding.faults) == (1e-3, 0.0, [])
    assert str(rounding) == "a gap of at most 0.001 (÷ temperature where coupled)"


def test_bounds_are_multiples_of_the_machines_changes():
    found = passes(gauss(0.0))
    assert found.bounds == (2 * found.machine.rms, 3 * found.machine.size)
    # Where the machine changes nothing: a quarter of the spacing of numbers at the largest logit.
    assert passes(gauss(0.0), gauss(0.0)).bounds == (2 * 2.0**-7 * 8 / 4, 10 * 2.0**-7 * 8 / 4)
    assert passes(gauss(0.0), gauss(0.0), precision="float32").bounds == (2e-4, 1e-3)


def test_another_past_that_is_rounded_as_finely_is_no_fault():
    """8 × 960 normal changes at √2 of the machine's 960. A false alarm needs a root mean square 40 % off, of 320
    changes (10 deviations), or one three times as large as the largest of 960. The seeds are fixed."""
    for seed in range(8):
        assert measured(passes(gauss(0.05 * 2**0.5), seed=seed)).faults == []


def test_an_error_in_every_pass_is_a_fault_with_place_and_bounds():
    (fault,) = measured(passes(lambda draw, reading, row: draw.gauss(-0.25, 0.05))).faults
    assert fault.group.name.count(",") == 2 and fault.group.rms > 0.2
    rms, peak = fault.passes.bounds
    assert str(fault).startswith("passes of 5 rows, without a rollback, after rolling back right drafts, ")
    assert str(fault).endswith(f"rounding explains at most {peak:.2g}, rms {rms:.2g}")


def test_an_error_after_rollbacks_is_a_fault_of_these_alone():
    (fault,) = measured(passes(lambda draw, reading, row: 0.15 * (reading == "rejected"))).faults
    assert fault.group.name == "after rolling back wrong drafts" and {c.reading for c in fault.group.changes} == {
        "rejected"
    }


def test_one_change_above_the_bound_is_a_fault():
    found = passes(gauss(0.02))
    peak = LeadChange("prose", "whole", 6, 2, 3.1 * found.machine.size)
    more = SeveralRows(5, found.machine, Changes("g", [*found.ours.changes, peak]), "bfloat16", 8.0)
    (fault,) = measured(more).faults
    assert fault.group.largest == peak and "(prose, token 7, row 3)" in str(fault)


def test_no_number_at_all_is_a_fault_even_where_the_machine_has_none_either():
    nothing = group(lambda draw, reading, row: math.inf)
    for machine in (group(gauss(0.02)), nothing):
        rounding = measured(SeveralRows(5, machine, nothing, "bfloat16", 8.0))
        assert rounding.faults and math.isfinite(rounding.limit())
        json.dumps(rounding.to_dict(), allow_nan=False)


def test_few_changes_are_no_evidence_of_what_is_always_there():
    def small(draw, reading, row):
        return 0.11

    assert measured(passes(small, rows=2, positions=4)).faults == []
    assert measured(passes(small, rows=2, positions=64)).faults


def test_what_a_fault_changes_is_no_near_tie():
    faulty = passes(lambda draw, reading, row: -0.5, gauss(0.01))
    assert faulty.fault and measured(faulty).limit() == faulty.machine.size


def test_flips_are_half_of_the_changes_that_exceed_a_margin():
    one = Changes("g", [LeadChange("code", "repeated", at, 0, at / 10) for at in range(10)])
    rounding = measured(SeveralRows(5, one, one, "bfloat16", 8.0))
    assert rounding.flips([0.75]) == 0.1 and rounding.flips([0.75, 0.75, 5.0]) == 0.2
    assert rounding.flips([0.75], temperature=0.5) == 0.3  # in scores every change is twice as large
    assert measured().flips([0.0]) == 0.0


def test_a_limit_given_by_the_user_moves_near_ties_alone():
    rounding = measured(passes(gauss(0.03)), given=0.6)
    assert rounding.limit() == rounding.limit(0.5) == 0.6 and rounding.faults == []
    assert str(rounding) == "a gap of at most 0.6 (--gap)"
    assert measured(passes(lambda draw, reading, row: -0.5), given=0.6).faults


# A difference and its judgement, and the verdict.


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
