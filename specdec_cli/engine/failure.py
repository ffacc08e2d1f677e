"""Failures of the device, and logits that are no numbers, as errors of ours.

This is the one place that reads mlx's messages; other errors pass unchanged. mlx raises RuntimeError. An allocation
fails at once (mlx/backend/metal/allocator.cpp, malloc); a command buffer fails on the device, and that is raised at a
later evaluation (mlx/backend/metal/device.cpp, CommandEncoder::commit).
"""

from __future__ import annotations

import errno
import os
import struct
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from time import sleep
from typing import Protocol

import mlx.core as mx

from specdec_cli.core.errors import DoesNotFit, NotAvailable, SpecdecError, reason
from specdec_cli.engine import device
from specdec_cli.system.link import TOLD_SECONDS
from specdec_cli.system.machine import temporary_folder

OUT_OF_MEMORY = (
    "Insufficient Memory",
    "Unable to allocate",
    "greater than the maximum allowed buffer size",
    "[metal::malloc] Resource limit",
    "cudaErrorMemoryAllocation",
    "out of memory",
)
# mlx's CPU compiler writes libraries into the temporary folder and loads them from there.
COMPILING = ("temp_directory_path", "filesystem error", "[Compile::eval_cpu]", "C++ shared library")
LOST = ("[ring]", "[jaccl]")
OTHER = ("Impacting Interactivity", "Caused GPU", "[METAL]", "[metal::", "[cuda]", "CUDA")
SMALLER = "these take less: --kv-bits 8, a shorter --max-context, or -k 0 without a draft (in a chat: /k 0)"


def witness(logits: mx.array, log_q: mx.array | None = None) -> mx.array:
    """The bits of the largest of `logits`, as a whole number; with `log_q`, of the sum of the largest of both. Lazy.

    Damaged weights compute no numbers, and an argmax over them still names a token. The largest logit of a pass is not
    finite as soon as one of them is NaN or infinite.
    """
    largest = mx.max(logits) if log_q is None else mx.max(logits) + mx.max(log_q)
    return largest.astype(mx.float32).view(mx.int32)


def is_finite(bits: int) -> bool:
    """Whether these bits, as they were read back, are those of a finite number."""
    value: float = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    return isfinite(value)


class NotFinite(NotAvailable):
    """A model whose logits are no numbers."""


def not_finite(target: str, log_q: mx.array | None) -> NotFinite:
    """The refusal of the model to blame: the draft if what it drew from is no distribution, else the target."""
    draft = log_q is not None and not is_finite(device.to_list(witness(log_q)[None])[0])
    name = "draft" if draft else f"target {target}"
    instead = "--drafter none decodes without it" if draft else "specdec pull --verify compares what was downloaded"
    return NotFinite(
        f"the {name} computes values that are not numbers (NaN or infinite): "
        "its weights are damaged, or too large for their type",
        f"download it again, or use another conversion; {instead}",
    )


def device_failure(error: RuntimeError | MemoryError) -> SpecdecError | None:
    """The failure of the device that `error` reports, None for any other."""
    said = reason(error)
    if isinstance(error, MemoryError) or any(mark in str(error) for mark in OUT_OF_MEMORY):
        used, usable = device.active_memory_bytes() / 1e9, device.usable_bytes() / 1e9
        return DoesNotFit(f"out of memory with {used:.1f} GB in use and {usable:.1f} GB usable: {said}", SMALLER)
    if any(mark in str(error) for mark in COMPILING):
        folder, problem = temporary_folder(device.compiled_into())
        if problem:
            full = problem.endswith(os.strerror(errno.ENOSPC))
            return (DoesNotFit if full else SpecdecError)(
                f"mlx cannot compile in the temporary folder {folder or '(empty name)'}: {problem}",
                "name a folder that can be written and run from: TMPDIR=FOLDER, then the same command",
            )
    if any(mark in str(error) for mark in LOST):
        sleep(TOLD_SECONDS)  # whoever started the ranks ends this one, and says which was lost
        return SpecdecError(f"another machine was lost: {said}", "start again: specdec help several-machines")
    if any(mark in str(error) for mark in OTHER):
        return SpecdecError(
            f"the device failed: {said}", "try again, or with -k 0; specdec doctor --selftest checks the device"
        )
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
        device.clear_cache()
        if failure is None or failure is error:
            raise
        raise failure from error
