"""Kernels that a reply will need, compiled while its weights are read.

mlx compiles a Metal library for each fused run of operations at its first use (mlx/backend/metal/compiled.cpp): some
tenths of a second each, in the midst of the first answer. The process keeps them by operations, types and constants,
whatever the shapes; but a single value that a function brings along is a constant (mlx/compile.cpp, compile_fuse). So
passes over one row, two and three compile all. The traces are the thread's own. What a network itself has compiled is
warmed up without its matrices, and products of packed ones, whose kernels are named by packing and rows, with small
ones.
Letters: K drafted tokens, V the target's vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache

from specdec_cli.core.safetensors import Stored, read_header
from specdec_cli.engine import device
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.stepwise import Scored, StepwiseDrafter
from specdec_cli.engine.hidden import hook
from specdec_cli.engine.load import blank_network
from specdec_cli.engine.pipeline import read_back
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.models.packing import Packed, packed

DTYPES = {"float32": mx.float32, "float16": mx.float16}
# What packed embeddings are looked up in, beside their type: words of a few bits each, and scales of one byte.
PACKED = {"U32": mx.uint32, "U8": mx.uint8}
# Rows of a pass with kernels of their own, each of which reads the weights once (mlx/backend/metal/quantized.cpp,
# qmv_wide). More rows take the same ones.
PRODUCT_ROWS = (1, 2, 3, 4, 5)
# How long loading waits for kernels before it says so.
PATIENCE_SECONDS = 1.0


class _Blank(StepwiseDrafter):
    """Draws as any network's drafter does, from the same `row` of logits [1, V] each time."""

    def __init__(self, rule: AcceptanceRule, row: mx.array) -> None:
        super().__init__(rule)
        self._row = row

    def _first_logits(self, context: Sequence[int]) -> Scored:
        yield from ()
        return self._row

    def _next_logits(self, token: mx.array) -> Scored:
        return self._first_logits(())


def warm_up(rule: str, sampling: Sampling, vocab_size: int, dtype: str, by_network: bool, looks_up: bool) -> None:
    """Draw and judge as a reply does, at K of 2, 1 and 0, over logits of zeros, as of models that compute in `dtype`.

    `by_network`, `looks_up`: with drafts drawn from logits, with drafts that were looked up.
    """
    made = make_rule(rule, Sampler(sampling, 0, (), vocab_size))
    drafted = [(k, drawn) for k in (2, 1) for drawn in [True] * by_network + [False] * looks_up]
    for place, (k, drawn) in enumerate([*drafted, (0, False)]):
        rows, position = mx.zeros((k + 1, vocab_size), DTYPES.get(dtype, mx.bfloat16)), 1 + 4 * place
        by = _Blank(made, rows[:1])
        draft = finished(by.propose([0] * position, k)) if drawn else Draft(mx.zeros(k, mx.int32))
        device.wait(read_back(draft, rows, made.judge(draft, rows, position)))


def warm_up_network(checkpoint: Checkpoint) -> None:
    """Look up a row of each type that is stored, then pass through the network, whose matrices multiply nothing.

    mlx's wheels have no library for a gather (mlx/backend/metal/indexing.cpp), nor for what mlx-lm fuses: activations,
    routing, gates. Shapes are in no name, but a row of more than 8 values is read otherwise than a shorter one.
    """
    computed = DTYPES.get(checkpoint.computed_dtype or "", mx.bfloat16)
    stored = {name: one for path in checkpoint.weights for name, one in read_header(path).tensors.items()}
    types = {one.dtype for one in stored.values()}
    for dtype in [computed, *(words for name, words in PACKED.items() if name in types)]:
        device.wait(mx.zeros((2, 64), dtype)[mx.zeros((1, 1), mx.int32)])
    network = blank_network(checkpoint)
    network.update(tree_map(mx.zeros_like, network.parameters()))
    network.set_dtype(computed)
    for _, module in network.named_modules():
        # bitnet's and Hadamard's are packed, and cannot be quantized once more.
        packs = "weight" in module and not mx.issubdtype(module.weight.dtype, mx.floating)
        if hasattr(module, "to_quantized") or packs:
            for method in ("__call__", "as_linear"):
                if hasattr(module, method):
                    hook(module, _zeros, method)
    cache = make_prompt_cache(network)
    for rows in (2, 1):
        device.wait(network(mx.zeros((1, rows), mx.int32), cache=cache))
    warm_up_products(stored, checkpoint.config, checkpoint.computed_dtype)


def warm_up_products(stored: Mapping[str, Stored], config: Mapping[str, Any], dtype: str | None) -> None:
    """Multiply rows of `dtype` with small matrices, for which mlx chooses the kernels that the packed ones get."""
    computed = DTYPES.get(dtype or "", mx.bfloat16)
    for one in {_small(matrix) for matrix in packed(stored, config)}:
        mode, bits, group_size = one.packing
        shape = (*(() if one.stored_as == "matrix" else (2,)), one.rows)
        words = mx.zeros((*shape, one.columns * bits // 32), mx.uint32)
        scales = mx.zeros((*shape, one.columns // group_size), computed if mode == "affine" else mx.uint8)
        biases = scales if mode == "affine" else None
        for rows in PRODUCT_ROWS:
            if one.stored_as == "experts":
                x, chosen = mx.zeros((rows, 1, 1, one.columns), computed), mx.zeros((rows, 2), mx.uint32)
                y = mx.gather_qmm(x, words, scales, biases, None, chosen, group_size=group_size, bits=bits, mode=mode)
            else:
                x = mx.zeros((*shape[:-1], rows, one.columns), computed)
                y = mx.quantized_matmul(x, words, scales, biases, group_size=group_size, bits=bits, mode=mode)
            device.wait(y)


def _small(matrix: Packed) -> Packed:
    """As small as the names of kernels allow, which tell rows by eights and columns by 512s, but for the fewest.

    nvfp4 has others from 4096 rows on.
    """
    least = 4096 if matrix.packing.mode == "nvfp4" and matrix.rows >= 4096 else 8
    columns = matrix.columns if matrix.columns <= 512 else 512 + matrix.columns % 512
    return matrix._replace(rows=least + matrix.rows % 8, columns=columns)


def _zeros(module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Zeros like the product, which is never computed, and so allocates no matrix; they come after the inputs."""
    inputs = [value for value in args if isinstance(value, mx.array)]
    return tree_map(lambda output: mx.depends(mx.zeros_like(output), inputs), original(module, *args, **kwargs))


@contextmanager
def compiling(work: Callable[[], None], tell: Callable[[str], None]) -> Iterator[None]:
    """In this context `work` runs in a thread of its own, where the device fuses; at the end it is done.

    `tell` hears of it where it takes long. What the device cannot do is the reply's to say.
    """
    if not device.fuses():
        yield
        return

    def run() -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - the thread's boundary: nobody reads it, and a reply meets the same
            pass
        finally:
            device.leave_thread()

    device.settle()  # mlx takes the first thread that asks it for the main one (mlx/utils.cpp)
    thread = Thread(target=run, name="kernels")
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_SECONDS)
        if thread.is_alive():
            tell("compiling kernels for this device: some seconds, and less the next time")
            thread.join()
