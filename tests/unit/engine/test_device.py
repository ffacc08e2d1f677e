"""The one place that asks the device about itself."""

import mlx.core as mx

from specdec_cli.engine import device


def test_a_device_that_rounds_is_found_by_trying(monkeypatch):
    """Negative control for the claim above."""
    monkeypatch.setattr(device, "backend", lambda: "cuda")
    assert device.float32_products() == "float32"
    monkeypatch.setattr(mx, "full", lambda shape, value: mx.ones(shape))  # 1 + 2^-12 became 1
    assert device.float32_products() == "TF32"


def test_settling_drops_the_error_of_a_pass_that_nobody_read(monkeypatch):
    def fail():
        raise RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory.")

    monkeypatch.setattr(mx, "synchronize", fail)
    device.settle()
