"""Kernels and families against the CPU: what is right passes, what is wrong everywhere is found, at its rows."""

import mlx.core as mx
import pytest

from conformance import against_cpu
from conformance.against_cpu import (
    APART,
    CONTEXTS,
    HEADS,
    LOGITS_APART,
    PACKINGS,
    SIZES,
    attention,
    difference,
    family_difference,
    kernels,
    on_cpu,
    product,
)
from specdec_cli.engine.selftest import families

FEW_ROWS = (1, 2, 9)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(against_cpu, "ROWS", FEW_ROWS)


def wrong_at(rows, compute):
    """`compute`, one per cent off at so many rows, but for the CPU stream that it is compared with."""
    asked = []

    def wrong(n):
        asked.append(n)
        return compute(n) * (1.01 if n == rows and asked.count(n) == 1 else 1.0)

    return wrong


@pytest.mark.parametrize("name", PACKINGS)
def test_products_of_every_packing_are_the_cpus(name):
    packing, group = PACKINGS[name]
    assert difference(product(packing, group, 64, 96))[0] <= APART


def test_attention_is_the_cpus_and_causal():
    compute = attention(64, 4, 24)
    assert difference(compute)[0] <= APART
    assert mx.array_equal(compute(9)[-1:], compute(9)[8:]) and compute(2).shape == (2, 2 * 4 * 64)


@pytest.mark.parametrize("rows", FEW_ROWS)
@pytest.mark.parametrize("compute", [product(("affine", 4), 64, 64, 96), attention(64, 4, 24)])
def test_a_kernel_that_is_wrong_at_one_row_count_is_found_there(rows, compute):
    apart, at = difference(wrong_at(rows, compute))
    assert apart > APART and at == rows


def test_a_kernel_that_gives_no_numbers_is_wrong():
    assert not difference(lambda n: mx.full((n, 4), mx.nan))[0] <= APART


@pytest.mark.slow
def test_a_family_is_the_cpus_unless_its_device_is_wrong(monkeypatch):
    dense = families()["dense"]
    assert family_difference(dense) <= LOGITS_APART
    passes, calls = against_cpu.passes, []

    def wrong(network, chunks):
        calls.append(chunks)
        return passes(network, chunks) * (1.01 if len(calls) == 1 else 1.0)

    monkeypatch.setattr(against_cpu, "passes", wrong)
    assert family_difference(dense) > LOGITS_APART


def test_every_kernel_has_a_name_of_its_own():
    assert len(kernels()) == len(PACKINGS) * len(SIZES) + len(HEADS) * len(CONTEXTS) > 30


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

    assert difference(compute)[0] <= APART and len(within) == 2 * len(FEW_ROWS)
    assert within[:2] == [[], switched[:1]] and calls == switched * len(FEW_ROWS)
    with pytest.raises(ValueError, match="no"), on_cpu():
        raise ValueError("no")
    assert calls == switched * (len(FEW_ROWS) + 1)
