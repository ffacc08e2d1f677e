"""Each kernel that a pass of a few rows takes, and every family of networks: does this device say what the CPU says?

A GPU that is wrong everywhere agrees with itself. The reference is the same computation on the CPU stream. All of it is
in float32, where nothing but the order of sums differs: `kernels` compares other precisions with float32 on the device.
Letters: n rows, [n, D] inputs, [O, D] weights, T context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.conformance.kernels import TOKENS, Family, blocks, network_in, passes, text
from specdec_cli.engine.conformance.suite import RAISED, Outcome
from specdec_cli.engine.draft_length.chips import AFFINE, Packing, chip_as_mlx_reads

# Rows that take one product each, one read for several, the last ones before a tile and the first in one.
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 17, 32)
# (D, O): where tiles begin depends on the wider side; 64 is a kernel of its own.
SIZES = ((512, 1024), (512, 4096), (512, 4608), (64, 512))
# (mode, bits) and the weights that share a scale.
PACKINGS: dict[str, tuple[Packing, int]] = {
    "not packed": (None, 0),
    "4 bits": ((AFFINE, 4), 64),
    "8 bits": ((AFFINE, 8), 64),
    "mxfp4": (("mxfp4", 4), 32),
    "nvfp4": (("nvfp4", 4), 16),
    "mxfp8": (("mxfp8", 8), 32),
}
# (head size, queries a key head); contexts below and above where mlx splits the keys (sdpa_vector_2pass).
HEADS, CONTEXTS = ((64, 4), (128, 8), (256, 2), (80, 1)), (100, 1500)
KEY_HEADS = 2
# Of the largest value, and of a logit's deviation: a hundred times what the order of sums was seen to change.
APART, LOGITS_APART = 1e-4, 5e-3
COMPARED = "this device's rows are the CPU's, float32"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One computation by rows: `compute(n)` gives [n, ..] on the default device."""

    name: str
    compute: Callable[[int], mx.array]

    def compare(self) -> Outcome:
        """Every row count here and on the CPU."""
        worst, at = 0.0, 0
        for n in ROWS:
            found = self.compute(n)
            mx.eval(found)
            with device.on_cpu():
                exact = self.compute(n)
                apart = float(mx.max(mx.abs(found - exact)) / mx.max(mx.abs(exact)))
            if not apart <= worst:  # nor is what is no number
                worst, at = apart, n
        told = f", at {at}" if at else ""
        detail = f"{ROWS[0]} to {ROWS[-1]} rows at most {worst:.2g} apart{told}; allowed {APART:g}"
        return Outcome(self.name, "pass" if worst <= APART else "wrong", detail=detail, proves=COMPARED)


def kernels() -> Iterator[Kernel]:
    """Products of every packing and size, then attention."""
    for name, (packing, group) in PACKINGS.items():
        for inner, outer in SIZES:
            yield Kernel(f"products, {name}, {outer} × {inner}", product(packing, group, inner, outer))
    for size, share in HEADS:
        for context in CONTEXTS:
            name = f"attention, head size {size}, {share} queries a key, {context} tokens"
            yield Kernel(name, attention(size, share, context))


def product(packing: Packing, group: int, inner: int, outer: int) -> Callable[[int], mx.array]:
    """n -> [n, O]: n rows times weights."""
    with mx.stream(mx.cpu):
        keys = mx.random.split(mx.random.key(inner * outer), 2)
        weights = mx.random.normal((outer, inner), key=keys[0]) / inner**0.5
        inputs = mx.random.normal((max(ROWS), inner), key=keys[1])
        mx.eval(weights, inputs)
        if packing is None:
            return lambda n: inputs[:n] @ weights.T
        mode, bits = packing
        packed = mx.quantize(weights, group_size=group, bits=bits, mode=mode)
        mx.eval(packed)

    def multiply(n: int) -> mx.array:
        return mx.quantized_matmul(inputs[:n], *packed, transpose=True, group_size=group, bits=bits, mode=mode)

    return multiply


def attention(size: int, share: int, context: int) -> Callable[[int], mx.array]:
    """n -> [n, H × size]: n causal queries over keys and values [1, KEY_HEADS, T, size]."""
    with mx.stream(mx.cpu):
        shapes = ((KEY_HEADS * share, max(ROWS)), (KEY_HEADS, context), (KEY_HEADS, context))
        keys = mx.random.split(mx.random.key(size * context), len(shapes))
        q, k, v = (mx.random.normal((1, *shape, size), key=key) for shape, key in zip(shapes, keys, strict=True))
        mx.eval(q, k, v)

    def attend(n: int) -> mx.array:
        out = mx.fast.scaled_dot_product_attention(q[:, :, :n], k, v, scale=size**-0.5, mask="causal")
        return out.swapaxes(1, 2).reshape(n, -1)

    return attend


def compare_family(family: Family) -> Outcome:
    """One text through the family's network in 4 bits and float32, in passes of the rounds' rows, here and there."""
    network = network_in(family, "4 bits")
    network.set_dtype(mx.float32)
    chunks = blocks(text(network(mx.zeros((1, 1), mx.int32)).shape[-1])[:TOKENS])
    found = passes(network, chunks)
    with device.on_cpu():
        exact = passes(network, chunks)
        apart = float(mx.max(mx.abs(found - exact)) / mx.std(exact))
    detail = f"{family.about}: at most {apart:.2g} deviations apart, allowed {LOGITS_APART:g}"
    return Outcome(_name(family), "pass" if apart <= LOGITS_APART else "wrong", detail=detail, proves=COMPARED)


def _name(family: Family) -> str:
    return f"{family.model_type}, float32"


def run_against_cpu(found: Sequence[Kernel], families: Sequence[Family]) -> Iterator[Outcome]:
    """The kernels `found`, then all `families`. One that raises counts as wrong, and the run goes on."""
    checks = [(kernel.name, kernel.compare) for kernel in found]
    checks += [(_name(family), partial(compare_family, family)) for family in families]
    for name, check in checks:
        try:
            yield check()
        except RAISED as error:
            yield Outcome(name, "wrong", detail=f"{type(error).__name__}: {error}", proves=COMPARED)
        mx.clear_cache()


def chosen_kernels() -> list[tuple[str, str, str]]:
    """(what, which kernels, for which architecture) mlx's Metal backend chooses here; nothing on other devices."""
    if not (architecture := device.kernel_architecture()):
        return []
    chip, where = chip_as_mlx_reads(architecture), f"as chosen for {architecture}"
    products = [(f"products, {name}", packing) for name, (packing, _) in PACKINGS.items() if packing]
    return [
        *((name, chip.products(packing, 4096), where) for name, packing in products),
        ("attention", chip.attention, where),
    ]
