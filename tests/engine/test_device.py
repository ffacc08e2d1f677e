"""The one place that asks the device about itself."""

import mlx.core as mx
import pytest

from fakes.dispatches import CAN_FUSE, fuse
from specdec_cli.engine import device


def test_the_backend_is_where_arrays_are_computed():
    backend = device.backend()
    assert backend in ("metal", "cuda", "cpu")
    assert (backend == "cpu") == (mx.default_device().type == mx.DeviceType.cpu)
    assert device.queues_ahead() == (backend != "cpu")


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


def test_a_cpu_runs_a_function_as_it_is_since_fusing_there_needs_a_compiler(monkeypatch):
    calls = []
    add = device.fused(lambda x: calls.append(x) or x + 1)
    monkeypatch.setattr(device, "fuses", lambda: False)
    assert [add(mx.array(float(i))).item() for i in range(3)] == [1, 2, 3]
    assert len(calls) == 3


@pytest.mark.parametrize(("backend", "expected"), [("metal", True), ("cuda", True), ("cpu", False)])
def test_gpus_fuse_and_a_cpu_does_not(monkeypatch, backend, expected):
    monkeypatch.setattr(device, "backend", lambda: backend)
    assert device.fuses.__wrapped__() == expected


@pytest.mark.skipif(not CAN_FUSE, reason="mlx cannot fuse here: a CPU without a C++ compiler")
def test_where_the_device_fuses_a_function_is_traced_once_for_each_shape(monkeypatch):
    calls = []
    add = device.fused(lambda x: calls.append(x.shape) or mx.exp(x) + 1)
    fuse(monkeypatch)
    for shape in [(2,), (2,), (3,), (2,), (3,)]:
        add(mx.zeros(shape))
    assert calls == [(2,), (3,)]


def test_settling_drops_the_error_of_a_pass_that_nobody_read(monkeypatch):
    def fail():
        raise RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory.")

    monkeypatch.setattr(mx, "synchronize", fail)
    device.settle()
