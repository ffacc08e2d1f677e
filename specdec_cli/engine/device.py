"""The device that mlx computes on: its facts, its queue, its memory. No other module asks the device about itself.

mlx keeps freed buffers for later allocations of nearly the same size (mlx/backend/common/buffer_cache.h: less than two
pages more). A KV cache that grew never fits again, so freed ones pile up, on Metal up to 95 % of the recommended
working set (mlx/backend/metal/allocator.cpp). So they are bounded and given back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, wraps
from importlib.metadata import version
from statistics import median
from typing import ParamSpec, TypeVar, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from specdec_cli.system import servers
from specdec_cli.system.machine import physical_bytes

P = ParamSpec("P")
R = TypeVar("R")
# Enough for the buffers of a pass, which are freed and needed again; the rest is of sizes that do not come back.
MOST_CACHED_BYTES, CACHED_SHARE = 1 << 30, 0.05
# Tokens after which freed buffers are given back: of an answer as in mlx-lm (generate.py, generate_step); of a prompt
# two chunks on Metal, as what they free is mostly needed by the next one.
EMITTED_TOKENS, READ_TOKENS = 256, 4096


def peak_memory_bytes() -> int:
    """Most memory mlx held since `reset_peak_memory`."""
    return mx.get_peak_memory()


def reset_peak_memory() -> None:
    mx.reset_peak_memory()


def active_memory_bytes() -> int:
    """Memory of all arrays that exist now; freed buffers that mlx keeps are not counted."""
    return mx.get_active_memory()


def device_name() -> str:
    """The chip's own name where the device gives it, else its architecture."""
    info = mx.device_info()
    return str(info.get("device_name") or info.get("architecture") or mx.default_device())


def backend() -> str:
    """`metal`, `cuda` or `cpu`: where arrays are computed."""
    if mx.default_device().type != mx.DeviceType.gpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def is_virtual() -> bool:
    """Whether the GPU is a virtual machine's, as on hosted runners: right answers can be tested there, no times."""
    return "Paravirtual" in device_name()


def kernel_architecture() -> str:
    """The Metal architecture whose kernels mlx chooses: the one that is forced, else the chip's; empty elsewhere."""
    if backend() != "metal":
        return ""
    return os.environ.get("MLX_METAL_GPU_ARCH") or str(mx.device_info().get("architecture", ""))


def float32_products() -> str:
    """The type in which products of float32 matrices are computed: `float32`, or `TF32` with 11 significant bits.

    Tried out rather than looked up: CUDA devices and Apple's GPUs from M5 on round unless MLX_ENABLE_TF32 is 0.
    """
    kept = 1.0 + 2.0**-12  # TF32 has no such number
    product = mx.full((512, 512), kept) @ mx.eye(512)
    return "float32" if float(mx.min(product)) == kept else "TF32"


def product_seconds(rows: Sequence[int], products: int = 15) -> list[float]:
    """Median seconds of a float32 product [n, 1024] × [1024, 4096] for each n of `rows`, which take turns."""
    weights = mx.full((4096, 1024), 0.5)
    inputs = [mx.full((n, 1024), 0.5) for n in rows]
    mx.eval(weights, inputs)
    seconds: list[list[float]] = [[] for _ in rows]
    for turn in range(products + 1):
        for taken, one in zip(seconds, inputs, strict=True):
            began = time.perf_counter()
            mx.eval(one @ weights.T)
            if turn:  # the first starts threads
                taken.append(time.perf_counter() - began)
    return [median(taken) for taken in seconds]


def queues_ahead() -> bool:
    """Whether the host can run ahead of the device: by about ten command buffers on a GPU, not at all on the CPU."""
    return backend() != "cpu"


@cache
def fuses() -> bool:
    """Whether elementwise operations are worth fusing into one kernel (`mx.compile`): on every GPU.

    There a kernel of V values costs more to launch than to run. On the CPU mlx fuses with the machine's C++ compiler
    (`JitCompiler`, mlx/backend/cpu/jit_compiler.cpp): a second for each new kernel, and other roundings of exp and log.
    Asked once a process, so that every user of a distribution rounds alike.
    """
    return backend() != "cpu"


def fused(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, of arrays alone, with each run of elementwise operations as one kernel, where the device `fuses`.

    mlx traces it once for each thread and set of shapes and types, and keeps every trace: give it few of them. A Python
    number among the arguments would be part of the kernel's text, so numbers come as arrays of no dimension.
    """
    compiled = cast(Callable[P, R], mx.compile(function))

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return compiled(*args, **kwargs) if fuses() else function(*args, **kwargs)

    return call


def prefill_tokens() -> int:
    """Tokens of a prompt that one pass reads. On Metal as many as in mlx-lm (generate.py, prefill_step_size).

    Elsewhere fewer: a recurrence without a Metal kernel keeps the state of every token of a pass.
    """
    return 2048 if backend() == "metal" else 512


def fuses_attention(key_size: int, value_size: int) -> bool:
    """Whether a pass over many rows keeps no scores [heads, rows, context], by the sizes of a head's key and value.

    Metal's full kernel is used for these sizes. It exists for 192 and 256 too, where mlx prefers the unfused products;
    an M5 uses it for 256 from 1024 rows on, which is not counted on
    (mlx/backend/metal/scaled_dot_product_attention.cpp, use_fallback).
    """
    if backend() == "metal":
        return key_size == value_size and key_size in (64, 72, 80, 96, 128)
    return backend() != "cpu"


def working_set_bytes() -> int | None:
    """Metal's recommended working set, None where the device does not say."""
    value = mx.device_info().get("max_recommended_working_set_size")
    return int(value) if value else None


def usable_bytes() -> int:
    """Bytes that models may take before headroom: Metal's recommended working set, else this machine's memory.

    What the servers of other processes hold or may take is not among them; some are left in any case.
    """
    taken = sum(server.held_bytes for server in servers.others())
    return max((working_set_bytes() or physical_bytes()) - taken, 1 << 20)


def versions() -> dict[str, str]:
    return {name: version(name) for name in ("mlx", "mlx-lm", "transformers", "tokenizers", "huggingface-hub")}


def compiled_into() -> str:
    """Where in the temporary folder mlx's CPU compiler keeps its libraries."""
    return f"mlx/{version('mlx')}/cpu"


def queue(array: mx.array) -> None:
    """Start computing `array`. Blocks the caller while about ten command buffers are in flight (mlx's own limit)."""
    mx.async_eval(array)


def wait(array: mx.array) -> None:
    """Return when `array` is computed."""
    mx.eval(array)


# mlx stops whoever evaluates while ten tasks of the process are active (mlx/transforms.cpp), and ten tensors that are
# read from disk are one. So eight tasks at once leave room for what another thread evaluates beside.
SLICE_ARRAYS = 80
# And so many that a slow disk, too, has some a few times a second; each slice waits for its last tensor alone.
SLICE_BYTES = 1 << 28


def read_weights(module: nn.Module, on_share: Callable[[float], None] = lambda share: None) -> None:
    """Return when the parameters of `module` are in memory. Other threads can evaluate meanwhile.

    `on_share` hears now and then which share of their bytes is.
    """
    arrays = [array for _, array in tree_flatten(module.parameters())]
    read, whole, begin = 0, max(sum(array.nbytes for array in arrays), 1), 0
    for end, array in enumerate(arrays, 1):
        read += array.nbytes
        slice_bytes = sum(one.nbytes for one in arrays[begin:end])
        if end - begin == SLICE_ARRAYS or slice_bytes >= SLICE_BYTES or end == len(arrays):
            mx.eval(arrays[begin:end])
            begin = end
            on_share(read / whole)


_settled = 0


def settle() -> None:
    """Return when nothing is in flight. The error of a pass that nobody will read is dropped.

    mlx keeps one until somebody waits (mlx/backend/metal/device.cpp, CommandEncoder::synchronize).
    """
    global _settled
    with suppress(RuntimeError):
        mx.synchronize()
    _settled += 1


def times_settled() -> int:
    """How often `settle` returned: where this changed, what was queued before ran in somebody else's time."""
    return _settled


def leave_thread() -> None:
    """The last call in a thread that computed: its streams end with it.

    Without it mlx 0.32 destroys a running worker at the process's exit, in one of two runs ("terminate called without
    an active exception", mlx/scheduler.h).
    """
    settle()
    mx.clear_streams()


def to_list(array: mx.array) -> list[int]:
    """The integers of `array` [N]; waits for them. mlx types every nesting that `tolist` may give; one axis has one."""
    return cast(list[int], array.tolist())


def bound_memory() -> None:
    """On Metal: bound the cache of freed buffers, from the next allocation on. mlx on a CPU keeps 32 MB at most."""
    recommended = working_set_bytes()
    if backend() == "metal" and recommended:
        mx.set_cache_limit(min(MOST_CACHED_BYTES, int(recommended * CACHED_SHARE)))


@contextmanager
def keeping_freed(nbytes: int) -> Iterator[None]:
    """On Metal: in this context mlx keeps so many bytes of freed buffers, if that is more than it may otherwise."""
    before = mx.set_cache_limit(nbytes) if backend() == "metal" else 0
    if before > nbytes:
        mx.set_cache_limit(before)
    try:
        yield
    finally:
        if backend() == "metal":
            mx.set_cache_limit(before)
            mx.clear_cache()


def clear_cache() -> None:
    """Give all freed buffers back to the system."""
    mx.clear_cache()


def give_back(before: int, now: int, every: int) -> None:
    """`clear_cache` where so many tokens of a text passed a multiple of `every` since there were so many `before`.

    On a CPU freed buffers are kept: clearing would wait for the queue (mlx/backend/no_gpu/allocator.cpp).
    """
    if now // every > before // every and backend() != "cpu":
        clear_cache()


def wires() -> bool:
    """Whether the user asked, on Metal, that macOS page out no weights: SPECDEC_WIRE=1.

    Nothing is wired otherwise. Macs panicked while mlx had its whole working set wired, as mlx-lm does, and freed
    buffers left its residency sets (mlx#3186, mlx-lm#1666).
    """
    return backend() == "metal" and os.environ.get("SPECDEC_WIRE") == "1"


def wire(weight_bytes: int) -> bool:
    """Where the device `wires`: so many bytes from now on. Whether that can be: not more than Metal recommends.

    mlx wires what is in memory now, in no order, then what comes while there is room. So 0 before weights are read, and
    their size once nothing else is there: then no cache and no scratch finds room.
    """
    if not wires():
        return True
    settle()  # no limit is to change during an evaluation
    clear_cache()
    fits = weight_bytes <= (working_set_bytes() or 0)
    mx.set_wired_limit(weight_bytes if fits else 0)
    return fits
