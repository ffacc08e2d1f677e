"""What `specdec doctor` finds. Law: it reads and never changes anything."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator

from specdec_cli import __version__, blas
from specdec_cli.audit.selftest import verification
from specdec_cli.format import size
from specdec_cli.hub import cache_folder, settings
from specdec_cli.machine import physical_bytes

Row = tuple[str, str, str]


def diagnose() -> list[Row]:
    """(name, value, consequence) for every line of the report."""
    return [*_machine(), *_versions(), *_storage(), *settings(), *_features()]


def _machine() -> Iterator[Row]:
    from specdec_cli.engine import device

    yield "chip", device.device_name(), f"{platform.system()} {platform.machine()}"
    backend = device.backend()
    notes = {
        "metal": "Apple GPU: what specdec is made for",
        "cuda": "NVIDIA GPU",
        "cpu": "works, and shows the mechanism; gains need a fast BLAS",
    }
    yield "computes on", backend, notes[backend]
    library = blas.load()
    if library:
        yield (
            "BLAS",
            library,
            f"several rows cost several passes; a fast one: {blas.INSTALL}" if library == blas.REFERENCE else "",
        )
        rows = (1, 2, 4, 8)
        costs = ", ".join(f"{1000 * seconds:.1f}" for seconds in device.product_seconds(rows))
        yield "rows", f"{costs} ms", f"for {', '.join(map(str, rows))} rows times 4096 × 1024"
    working_set = device.working_set_bytes()
    if working_set:
        yield "working set", size(working_set), "what Metal recommends for weights and caches together"
    yield "memory", size(physical_bytes()), "both models and both caches must fit"
    if platform.system() == "Darwin" and platform.machine() != "arm64":
        yield "python", platform.machine(), "not native: install an arm64 Python, or mlx cannot use the GPU"


def _versions() -> Iterator[Row]:
    from specdec_cli.engine import device

    yield "specdec", __version__, ""
    yield "python", platform.python_version(), sys.executable
    for name, number in device.versions().items():
        yield name, number, ""


def _storage() -> Iterator[Row]:
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    state = "exists" if folder.exists() else "not there yet"
    writable = os.access(existing, os.W_OK)
    yield "model cache", str(folder), f"{state}, {size(free)} free" + ("" if writable else ", not writable")


def _features() -> Iterator[Row]:
    yield "targets", "whatever mlx-lm runs", f"rollback {verification()}"
    yield "sampling", "any temperature", "rules token, block, coupled (one seed, one text) and match"
