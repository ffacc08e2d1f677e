"""Failures of the device as errors of ours. Law: the one place that reads mlx's messages; others pass unchanged.

mlx raises RuntimeError. An allocation fails at once (mlx/backend/metal/allocator.cpp, malloc); a command buffer fails
on the device, and that is raised at a later evaluation (mlx/backend/metal/device.cpp, CommandEncoder::commit).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from specdec_cli.engine import device
from specdec_cli.engine.finite import NotFinite
from specdec_cli.engine.memory import clear_cache
from specdec_cli.errors import DoesNotFit, SpecdecError

OUT_OF_MEMORY = (
    "Insufficient Memory",
    "Unable to allocate",
    "greater than the maximum allowed buffer size",
    "[metal::malloc] Resource limit",
    "cudaErrorMemoryAllocation",
    "out of memory",
)
STOPPED = ("Impacting Interactivity", "Caused GPU Timeout Error", "Caused GPU Hang Error")
OTHER = ("[METAL]", "[metal::", "[cuda]", "CUDA")
SMALLER = "these take less: --kv-bits 8, a shorter --max-context, or -k 0 without a draft (in a chat: /k 0)"
MOST_SHOWN = 160


def device_failure(error: RuntimeError | MemoryError) -> SpecdecError | None:
    """The failure of the device that `error` reports, None for any other."""
    text = " ".join(str(error).split())
    said = text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
    if isinstance(error, MemoryError) or any(mark in text for mark in OUT_OF_MEMORY):
        used, usable = device.active_memory_bytes() / 1e9, device.usable_bytes() / 1e9
        return DoesNotFit(
            f"out of memory with {used:.1f} GB in use and {usable:.1f} GB usable: {said or 'MemoryError'}", SMALLER
        )
    if any(mark in text for mark in STOPPED):
        return SpecdecError(
            f"the system stopped a pass that kept the GPU too long: {said}",
            "try again; shorter passes: -k 0 (in a chat: /k 0), a shorter prompt, a smaller pair",
        )
    if any(mark in text for mark in OTHER):
        return SpecdecError(f"the device failed: {said}", "try again; specdec doctor --selftest checks the device")
    return None


class Forgetting(Protocol):
    """A model or a head with caches."""

    def forget(self) -> None:
        """Empty the caches."""


@contextmanager
def recovering(*models: Forgetting | None) -> Iterator[None]:
    """In this context a failure of the device is an error of two lines, after which `models` can be used again.

    Their caches are emptied: they may hold arrays that were never computed, or are no numbers. Raises: DoesNotFit,
    SpecdecError.
    """
    try:
        yield
    except (RuntimeError, MemoryError, NotFinite) as error:
        failure = error if isinstance(error, NotFinite) else device_failure(error)
        # The failed calls' locals hold arrays; the lines of the traceback stay.
        traceback.clear_frames(error.__traceback__)
        for model in models:
            if model is not None:
                model.forget()
        device.settle()
        clear_cache()
        if failure is None or failure is error:
            raise
        raise failure from error
