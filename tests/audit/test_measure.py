"""The measuring of rounding on loaded networks: what kernels change is the machine's, and ours change nothing."""

from __future__ import annotations

import pytest

from fakes.drafting import open_session
from fakes.planted import architecture_folder, in_kernels, precise_folder
from specdec_cli.audit.audit import measure
from specdec_cli.engine.baseline import KnownText, Position
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request


def measured(session, rows=(5,), tokens=24):
    ids = session.raw_tokens("def read_lines(path):")
    plain = session.plain(ids, Request(tokens, drafter="none", sampling={"temperature": 0.0}))
    return measure(session, [("code", KnownText(ids, [Position.of(step) for step in plain]))], rows)


def tiny(folder, dtype, bits=None):
    return open_session(Pair("tiny", str(precise_folder(folder / "target", dtype, bits)), None))


def test_kernels_that_do_not_differ_by_rows_change_nothing(tmp_path):
    """As on this CPU: mlx multiplies row by row here. The floor alone is left."""
    found = measured(tiny(tmp_path, "bfloat16"), (1, 2, 5))
    assert [passes.rows for passes in found.passes] == [1, 2, 5]
    assert (found.measured, found.limit(), found.faults) == (0.0, 1e-3, [])


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", None), ("bfloat16", 4), ("float32", None)])
def test_another_order_of_summation_is_the_machines_and_ours_is_the_same_to_the_bit(tmp_path, dtype, bits):
    session = tiny(tmp_path, dtype, bits)
    in_kernels(session)
    found = measured(session)
    (passes,) = found.passes
    assert passes.machine.rms > 0.0 and found.faults == []
    assert {change.logits for change in passes.ours.changes if change.reading == "repeated"} == {0.0}
    assert passes.ours.rms < 1.5 * passes.machine.rms


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba2", "falcon_h1", "plamo2", "lfm2", "olmo3", "recurrent_gemma"])
def test_ours_differ_no_more_than_the_machines_where_kernels_differ_by_rows(name, tmp_path):
    """Scans as matrices, and projections that are shaped otherwise; the last three go row by row here."""
    found = measured(open_session(Pair(name, str(architecture_folder(name, tmp_path / name, 0.0, "bfloat16")), None)))
    (passes,) = found.passes
    assert found.faults == [] and passes.ours.rms <= 1.5 * passes.machine.rms
    assert (passes.machine.rms > 0.0) == (name in ("mamba2", "falcon_h1", "plamo2"))
