"""The limit of a near-tie."""

from __future__ import annotations

from specdec_cli.audit.divergence import Limit


def test_the_limit_grows_with_the_spacing_the_logits_and_the_inverse_temperature():
    assert Limit("float32").at(30.0, 0.0) == 1e-3
    assert Limit("bfloat16").at(20.0, 0.0) == 4 * 2.0**-7 * 20
    assert Limit("bfloat16").at(20.0, 0.5) == 2 * Limit("bfloat16").at(20.0, 1.0)
    assert Limit("float16").at(20.0, 0.0) == Limit("TF32").at(20.0, 0.0) == 4 * 2.0**-10 * 20
    assert Limit("bfloat16", given=0.25).at(20.0, 0.5) == 0.25
    assert "4 × 0.0078 (the spacing of bfloat16) × the largest logit" in str(Limit("bfloat16"))
