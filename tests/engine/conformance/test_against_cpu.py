"""Kernels and families against the CPU: what is right passes, what is wrong everywhere is found, at its rows."""

import mlx.core as mx
import pytest

from specdec_cli.engine import device
from specdec_cli.engine.conformance import against_cpu
from specdec_cli.engine.conformance.against_cpu import (
    PACKINGS,
    Kernel,
    attention,
    chosen_kernels,
    compare_family,
    kernels,
    product,
    run_against_cpu,
)
from specdec_cli.engine.conformance.kernels import families

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
    found = Kernel(name, product(packing, group, 64, 96)).compare()
    assert (found.status, found.proves) == ("pass", against_cpu.COMPARED), found.detail


def test_attention_is_the_cpus_and_causal():
    compute = attention(64, 4, 24)
    assert Kernel("attention", compute).compare().status == "pass"
    assert mx.array_equal(compute(9)[-1:], compute(9)[8:]) and compute(2).shape == (2, 2 * 4 * 64)


@pytest.mark.parametrize("rows", FEW_ROWS)
@pytest.mark.parametrize("compute", [product(("affine", 4), 64, 64, 96), attention(64, 4, 24)])
def test_a_kernel_that_is_wrong_at_one_row_count_is_found_there(rows, compute):
    found = Kernel("a kernel", wrong_at(rows, compute)).compare()
    assert found.status == "wrong" and f"apart, at {rows};" in found.detail


def test_a_kernel_that_gives_no_numbers_is_wrong():
    assert Kernel("a kernel", lambda n: mx.full((n, 4), mx.nan)).compare().status == "wrong"


@pytest.mark.slow
def test_a_family_is_the_cpus_unless_its_device_is_wrong(monkeypatch):
    dense = families()["dense"]
    assert compare_family(dense).status == "pass"
    passes, calls = against_cpu.passes, []

    def wrong(network, chunks):
        calls.append(chunks)
        return passes(network, chunks) * (1.01 if len(calls) == 1 else 1.0)

    monkeypatch.setattr(against_cpu, "passes", wrong)
    assert compare_family(dense).status == "wrong"


def test_one_that_raises_does_not_stop_the_others():
    def broken(n):
        raise RuntimeError("no such kernel")

    found = list(run_against_cpu([Kernel("a", broken), Kernel("b", product(None, 0, 64, 96))], []))
    assert [(one.name, one.status, one.detail[:28]) for one in found] == [
        ("a", "wrong", "RuntimeError: no such kernel"),
        ("b", "pass", "1 to 9 rows at most 0 apart;"),
    ]


def test_every_kernel_has_a_name_of_its_own():
    names = [kernel.name for kernel in kernels()]
    assert len(set(names)) == len(names) > 30


@pytest.mark.parametrize(
    ("architecture", "four_bits", "nvfp4"),
    [
        ("applegpu_g13g", "a read a row (qmv), from 10 rows", "weights read once for 5 rows (qmv_wide), from 10 rows"),
        ("applegpu_g15s", *2 * ("weights read once for 5 rows (qmv_wide), from 15 rows",)),
        ("applegpu_g15d", *2 * ("weights read once for 5 rows (qmv_wide), from 18 rows",)),
        ("air64_v26", "a read a row (qmv), from 12 rows", "weights read once for 5 rows (qmv_wide), from 12 rows"),
    ],
)
def test_the_kernels_that_mlx_chooses_are_told_by_architecture(monkeypatch, architecture, four_bits, nvfp4):
    monkeypatch.setattr(device, "backend", lambda: "metal")
    monkeypatch.setenv("MLX_METAL_GPU_ARCH", architecture)
    told = {name: (value, where) for name, value, where in chosen_kernels()}
    where = f"as chosen for {architecture}"
    assert told["products, 4 bits"] == (f"{four_bits} in tiles of 32 (qmm)", where)
    assert told["products, nvfp4"][0].startswith(nvfp4) and told["attention"][1] == where


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_without_metal_no_kernels_are_told_whatever_is_forced(monkeypatch, backend):
    monkeypatch.setattr(device, "backend", lambda: backend)
    monkeypatch.setenv("MLX_METAL_GPU_ARCH", "applegpu_g15s")
    assert chosen_kernels() == []
