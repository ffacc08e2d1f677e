"""The measuring of rounding on a loaded pair."""

from __future__ import annotations

import pytest

from fakes.drafting import open_session
from fakes.planted import in_kernels, precise_folder
from specdec_cli.audit.measure import measure, plain_text, rows_of
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request


def session_of(folder, dtype, bits=None):
    return open_session(Pair("tiny", str(precise_folder(folder / f"{dtype}{bits}", dtype, bits)), None))


def measured(session, rows=(5,), tokens=24):
    ids = session.raw_tokens("def read_lines(path):")
    text = plain_text(session, ids, Request(tokens, drafter="none", sampling={"temperature": 0.0}))
    return measure(session, [("code", text)], rows)


@pytest.mark.parametrize(
    ("ks", "rows"), [([4], [5]), ([0, 1, 16], [1, 2, 17]), (["auto"], [5, 9]), ([4, "auto"], [5, 9])]
)
def test_a_pass_verifies_one_row_more_than_tokens_are_drafted(ks, rows):
    assert rows_of(ks) == rows


def test_kernels_that_do_not_differ_by_rows_change_nothing(tmp_path):
    """As on this CPU: mlx multiplies row by row here. The floor alone is left."""
    found = measured(session_of(tmp_path, "bfloat16"), (1, 2, 5))
    assert [passes.rows for passes in found.passes] == [1, 2, 5]
    assert (found.measured, found.limit(), found.faults) == (0.0, 1e-3, [])


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", None), ("bfloat16", 4), ("float16", None), ("float32", None)])
def test_another_order_of_summation_is_the_machines_and_ours_is_the_same_to_the_bit(tmp_path, dtype, bits):
    session = session_of(tmp_path, dtype, bits)
    in_kernels(session)
    found = measured(session)
    (passes,) = found.passes
    assert passes.machine.rms > 0.0 and found.faults == []
    by_reading = {c.reading: c.logits for c in passes.ours.changes if c.reading == "repeated"}
    assert set(by_reading.values()) == {0.0} and passes.ours.rms < 1.5 * passes.machine.rms
