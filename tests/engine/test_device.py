"""The one place that asks the device about itself."""

import mlx.core as mx
import pytest

from specdec_cli.engine import device
from specdec_cli.machine import physical_bytes


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"device_name": "Apple M4", "architecture": "applegpu"}, "Apple M4"),
        ({"device_name": "", "architecture": "sm_90"}, "sm_90"),
        ({}, str(mx.default_device())),
    ],
)
def test_the_name_is_the_chips_own_else_its_architecture(monkeypatch, info, expected):
    monkeypatch.setattr(mx, "device_info", lambda: info)
    assert device.device_name() == expected


def test_a_device_that_rounds_is_found_by_trying(monkeypatch):
    """Negative control for the claim above."""
    monkeypatch.setattr(device, "backend", lambda: "cuda")
    assert device.float32_products() == "float32"
    monkeypatch.setattr(mx, "full", lambda shape, value: mx.ones(shape))  # 1 + 2^-12 became 1
    assert device.float32_products() == "TF32"


@pytest.mark.parametrize(("backend", "expected"), [("metal", True), ("cuda", True), ("cpu", False)])
def test_gpus_fuse_and_a_cpu_does_not(monkeypatch, backend, expected):
    monkeypatch.setattr(device, "backend", lambda: backend)
    assert device.fuses.__wrapped__() == expected


def test_settling_drops_the_error_of_a_pass_that_nobody_read(monkeypatch):
    def fail():
        raise RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory.")

    monkeypatch.setattr(mx, "synchronize", fail)
    device.settle()


@pytest.mark.parametrize("recommended", [17_000_000_000, 0, None])
def test_usable_memory_is_what_the_device_recommends_else_the_machines(monkeypatch, recommended):
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": recommended})
    assert device.working_set_bytes() == (recommended or None)
    assert device.usable_bytes() == (recommended or physical_bytes())
