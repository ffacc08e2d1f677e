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
    assert found.noise.rms > 0.01


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", None), ("bfloat16", 4), ("float16", None)])
def test_another_order_of_summation_is_measured_and_is_no_fault(tmp_path, dtype, bits):
    session = session_of(tmp_path, dtype, bits)
    in_kernels(session)
    found = measured(session)
    assert found.faults == [] and found.limit() == found.measured
    assert 0.2 * found.noise.rms < found.passes[0].all.rms < 2.2 * found.noise.rms


def test_half_precision_has_an_eighth_of_the_noise_of_bfloat16(tmp_path):
    """Three bits more."""
    wide, narrow = (measured(session_of(tmp_path, dtype)).noise.rms for dtype in ("bfloat16", "float16"))
    assert 5 < wide / narrow < 12


def test_a_float32_network_is_bounded_without_a_wider_type(tmp_path):
    session = session_of(tmp_path, "float32")
    in_kernels(session)
    found = measured(session)
    assert found.noise is None and 0.0 < found.measured < 1e-4
    assert (found.limit(), found.bounds.peak, found.faults) == (1e-3, 1e-3, [])
