"""Every kernel that a pass of a few rows takes, and every family, on the GPU against the CPU: TEST_DEVICE=gpu."""

import pytest

from conformance.against_cpu import APART, LOGITS_APART, difference, family_difference, kernels
from specdec_cli.engine import device
from specdec_cli.engine.selftest import families

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(device.backend() == "cpu", reason="the CPU is what the GPU is compared with"),
]


@pytest.mark.parametrize("name", kernels())
def test_a_kernel_is_the_cpus_at_every_row_count(name):
    apart, rows = difference(kernels()[name]())
    assert apart <= APART, (rows, device.kernel_architecture())


@pytest.mark.parametrize("kind", families())
def test_a_family_is_the_cpus_in_float32(kind):
    assert family_difference(families()[kind]) <= LOGITS_APART, device.kernel_architecture()
