"""Errors of half a logit, planted in a loaded target, are reported as faults; without them the same audit passes.

They are in specdec's passes alone. What is in the network's own is the machine's, as mlx-lm has it too.
"""

from __future__ import annotations

import pytest

from fakes.drafting import open_session
from fakes.planted import (
    after_rollbacks,
    architecture_folder,
    in_kernels,
    in_rows,
    left_over,
    lifted,
    precise_folder,
    zeroed_keys,
)
from specdec_cli.audit.audit import AuditPlan, run_audit
from specdec_cli.audit.prompts import AuditPrompt
from specdec_cli.audit.rounding import READINGS
from specdec_cli.errors import SpecdecError
from specdec_cli.pairs.pair import Pair

pytestmark = pytest.mark.slow

FEW = (AuditPrompt("code", "def f("), AuditPrompt("list", "1."))
# 72 changes in passes without a rollback: they are evidence from 64 on.
ENOUGH = (FEW[0], AuditPrompt("prose", "Every evening"), FEW[1])
SIZE = 0.5
ROLLED_BACK = ", ".join(name for name in READINGS.values() if name.startswith("after"))
# (type, bits of the weights, gain of the logits)
BFLOAT16, FOUR_BITS, FLOAT16 = ("bfloat16", None, 2.2), ("bfloat16", 4, 1.0), ("float16", None, 1.0)
PRECISIONS = [FOUR_BITS, *(pytest.param(more, marks=pytest.mark.slow) for more in (BFLOAT16, FLOAT16))]


def open_pair(folder, dtype, bits, gain, draft_noise=0.05):
    made = (("target", 0.0), ("draft", draft_noise))
    folders = [precise_folder(folder / name, dtype, bits, noise, gain) for name, noise in made]
    return open_session(Pair("tiny", *map(str, folders)))


@pytest.fixture(params=PRECISIONS, ids=lambda values: "-".join(map(str, values)))
def session(request, tmp_path):
    return open_pair(tmp_path, *request.param)


def audited(session, **settings):
    plan = AuditPlan(**{"prompts": FEW, "ks": (4,), "max_tokens": 20, "temperature": 0.0, "raw": True} | settings)
    return run_audit(session, plan, lambda *_: None)


def fault_of(found):
    assert not found.lossless
    with pytest.raises(SpecdecError):
        found.require_lossless()
    (fault,) = found.rounding.faults
    assert fault.group.largest.prompt in {prompt.name for prompt in ENOUGH}
    return fault


def test_without_an_error_the_pair_is_lossless(session):
    found = audited(session)
    assert found.lossless and found.count("identical") == len(FEW)
    assert found.rounding.measured == 0.0


@pytest.mark.slow
def test_kernels_with_another_order_of_summation_are_lossless_up_to_near_ties(session):
    in_kernels(session)
    found = audited(session)
    assert found.lossless is not False and found.rounding.passes[0].machine.rms > 0.0


def test_an_error_in_the_whole_pass_is_a_fault(session, monkeypatch):
    in_rows(SIZE, monkeypatch)
    fault = fault_of(audited(session))
    assert fault.group.name == ", ".join(READINGS.values())
    assert abs(fault.group.largest.logits) == pytest.approx(SIZE, abs=0.07)


def test_an_error_in_one_row_is_a_fault_and_the_row_is_named(session, monkeypatch):
    in_rows(SIZE, monkeypatch, slice(2, 3))
    assert fault_of(audited(session)).group.largest.row == 2


def test_an_error_in_the_pass_after_a_rollback_is_a_fault_of_rollbacks(session, monkeypatch):
    after_rollbacks(session, SIZE, monkeypatch)
    assert fault_of(audited(session)).group.name == ROLLED_BACK


def test_state_left_over_after_a_rejection_is_a_fault_of_rollbacks(session, monkeypatch):
    """A share of the first rejected value stays in the last one kept: at most positions far less than half a logit."""
    left_over(0.015, monkeypatch)
    found = audited(session)
    assert found.rounding.passes[0].ours.rms < SIZE / 2
    assert fault_of(found).group.name.startswith("after ")


def test_a_fault_is_one_though_no_token_flipped(tmp_path, monkeypatch):
    """Only the last row is wrong, and no draft is right for long enough to need it."""
    session = open_pair(tmp_path, *BFLOAT16, draft_noise=0.5)
    in_rows(SIZE, monkeypatch, slice(4, 5))
    found = audited(session)
    assert found.count("identical") == len(found.findings)
    assert found.verdict.startswith("not lossless here: passes of 5 rows differ")
    assert str(fault_of(found)).startswith("passes of 5 rows, without a rollback, after")


ARCHITECTURES = ["qwen3", "olmo3", "lfm2", "plamo2"]  # keys alone, windows, two recurrent kinds
WEIGHTS = {"float32": ("float32", None), "bfloat16": ("bfloat16", None), "4 bits": ("bfloat16", 4)}


CELLS = [
    pytest.param(plant, name, weights, marks=() if name == "qwen3" else pytest.mark.full)
    for name in ARCHITECTURES
    for weights in WEIGHTS
    for plant in (None, "key", "logits")
]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "name", "weights"), CELLS)
def test_errors_of_ours_are_told_from_rounding_in_every_precision(name, weights, plant, tmp_path, monkeypatch):
    """In 4 bits, errors of 15 times the rounding between passes were allowed: 8 of 8 changed answers were lossless."""
    roles = (("target", 0.0), ("draft", None))
    folders = [architecture_folder(name, tmp_path / role, noise, *WEIGHTS[weights]) for role, noise in roles]
    session = open_session(Pair("tiny", *map(str, folders)))
    if plant == "key":
        zeroed_keys(monkeypatch)
    if plant == "logits":
        lifted(SIZE, 7, monkeypatch)
    found = audited(session, prompts=ENOUGH, max_tokens=24)
    if plant is None:
        assert found.lossless is not False and not found.count("diverged")
    else:
        fault = fault_of(found)
        assert ("without a rollback" in fault.group.name) == (plant == "logits")
