"""The one place that asks the device about itself."""

import mlx.core as mx
import pytest

from specdec_cli.engine import device
from specdec_cli.engine.conformance.against_cpu import ROWS, Kernel, run_against_cpu


def test_a_device_that_rounds_is_found_by_trying(monkeypatch):
    """Negative control for the claim above."""
    monkeypatch.setattr(device, "backend", lambda: "cuda")
    assert device.float32_products() == "float32"
    monkeypatch.setattr(mx, "full", lambda shape, value: mx.ones(shape))  # 1 + 2^-12 became 1
    assert device.float32_products() == "TF32"


@pytest.mark.parametrize(
    ("system", "variable", "switched"), [("darwin", "", ["off", "on"]), ("darwin", "1", []), ("linux", "", [])]
)
def test_the_cpu_says_what_is_right_without_a_compiler_on_a_mac(monkeypatch, system, variable, switched):
    """The bug: macOS opened its window that installs developer tools amid a self-test."""
    calls, within = [], []
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr(mx, "disable_compile", lambda: calls.append("off"))
    monkeypatch.setattr(mx, "enable_compile", lambda: calls.append("on"))
    if variable:
        monkeypatch.setenv("MLX_DISABLE_COMPILE", variable)
    else:
        monkeypatch.delenv("MLX_DISABLE_COMPILE", raising=False)

    def compute(rows):
        within.append(list(calls))
        return mx.ones((rows, 2))

    [outcome] = run_against_cpu([Kernel("a", compute)], [])
    assert outcome.status == "pass" and len(within) == 2 * len(ROWS)
    assert within[:2] == [[], switched[:1]] and calls == switched * len(ROWS)
    with pytest.raises(ValueError, match="no"), device.on_cpu():
        raise ValueError("no")
    assert calls == switched * (len(ROWS) + 1)


def test_settling_drops_the_error_of_a_pass_that_nobody_read(monkeypatch):
    def fail():
        raise RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory.")

    monkeypatch.setattr(mx, "synchronize", fail)
    device.settle()
