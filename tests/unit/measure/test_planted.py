"""Errors of half a logit, planted in a loaded target, are reported as faults; without them the same audit passes.

They are in specdec's passes alone. What is in the network's own is the machine's, as mlx-lm has it too.
"""

from __future__ import annotations

import pytest

from fakes.drafting import open_session
from fakes.planted import (
    architecture_folder,
    in_kernels,
    in_rows,
    lifted,
    precise_folder,
    zeroed_keys,
)
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.request import Request
from specdec_cli.engine.baseline import KnownText, Position
from specdec_cli.measure.audit import AuditPlan, AuditPrompt, measure, run_audit
from specdec_cli.pairs.pair import Pair

FEW = (AuditPrompt("code", "def f("), AuditPrompt("list", "1."))
# 72 changes in passes without a rollback: they are evidence from 64 on.
ENOUGH = (FEW[0], AuditPrompt("prose", "Every evening"), FEW[1])
SIZE = 0.5


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


@pytest.mark.slow
def test_a_fault_is_one_though_no_token_flipped(tmp_path, monkeypatch):
    """Only the last row is wrong, and no draft is right for long enough to need it."""
    made = (("target", 0.0), ("draft", 0.5))
    folders = [precise_folder(tmp_path / name, "bfloat16", None, noise, gain=2.2) for name, noise in made]
    session = open_session(Pair("tiny", *map(str, folders)))
    in_rows(SIZE, monkeypatch, slice(4, 5))
    found = audited(session)
    assert found.count("identical") == len(found.findings)
    assert found.problem.startswith("this is more than rounding: passes of 5 rows")
    fault = fault_of(found)
    assert fault.group.largest.row == 4 and str(fault).startswith("passes of 5 rows, without a rollback, after")


# What kernels change is the machine's, and ours change nothing.


def measured(session, rows=(5,), tokens=24):
    ids = session.pair.text_tokens("def read_lines(path):")
    plain = session.plain(ids, Request(tokens, drafter="none", sampling={"temperature": 0.0}))
    return measure(session, [("code", KnownText(ids, [Position.of(step) for step in plain]))], rows)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 4), pytest.param("bfloat16", None, marks=pytest.mark.full)])
def test_another_order_of_summation_is_the_machines_and_ours_is_the_same_to_the_bit(tmp_path, dtype, bits):
    session = open_session(Pair("tiny", str(precise_folder(tmp_path / "target", dtype, bits)), None))
    flat = measured(session, (1, 2, 5))  # as on this CPU: mlx multiplies row by row, and the floor alone is left
    assert [passes.rows for passes in flat.passes] == [1, 2, 5]
    assert flat.measured < 1e-4 and (flat.limit(), flat.faults) == (1e-3, [])
    in_kernels(session)
    found = measured(session)
    (passes,) = found.passes
    assert passes.machine.rms > 0.0 and found.faults == []
    assert {change.logits for change in passes.ours.changes if change.reading == "repeated"} == {0.0}
    assert passes.ours.rms < 1.5 * passes.machine.rms


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("mamba2", "olmo3")),
        *(pytest.param(name, marks=pytest.mark.full) for name in ("falcon_h1", "plamo2", "lfm2", "recurrent_gemma")),
    ],
)
def test_ours_differ_no_more_than_the_machines_where_kernels_differ_by_rows(name, tmp_path):
    """Scans as matrices, and projections that are shaped otherwise; the last three go row by row here."""
    found = measured(open_session(Pair(name, str(architecture_folder(name, tmp_path / name, 0.0, "bfloat16")), None)))
    (passes,) = found.passes
    assert found.faults == [] and passes.ours.rms <= 1.5 * passes.machine.rms
    assert (passes.machine.rms > 0.0) == (name in ("mamba2", "falcon_h1", "plamo2"))


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
