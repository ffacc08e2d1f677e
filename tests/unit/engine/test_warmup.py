"""Kernels compiled beside the reading of the weights: which, in which thread, and who hears of it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Event, current_thread, main_thread

import mlx.core as mx
import pytest

from conformance.architectures import architectures
from fakes.dispatches import CAN_FUSE
from fakes.packed import packed_as
from specdec_cli.core.safetensors import Stored
from specdec_cli.engine import device, warmup
from specdec_cli.engine.load import blank_network, load_network
from specdec_cli.engine.warmup import compiling, warm_up_network, warm_up_products
from specdec_cli.models.checkpoint import Checkpoint

needs_fusing = pytest.mark.skipif(not CAN_FUSE, reason="mlx cannot fuse here: a CPU without a C++ compiler")


def kernels(folder, array):
    """The fused operations in the graph of `array`."""
    path = folder / "graph.dot"
    mx.export_to_dot(str(path), array)
    return set(re.findall(r'label ="(Compiled\w+)', path.read_text()))


def stored(folder, name, tensors, **config):
    """A checkpoint of the architecture `name` with these tensors."""
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return Checkpoint("m", folder, architectures()[name].config | config, (folder / "model.safetensors",))


def by_network(monkeypatch, folder, checkpoint):
    """(fused operations, types of looked up rows, types of the network's logits) of its warm-up."""
    fused, lookups, passes = set(), [], []

    def wait(array):
        fused.update(kernels(folder, array))
        (lookups if array.shape == (1, 1, 64) else passes).append(array.dtype)

    with monkeypatch.context() as patch:
        patch.setattr(device, "wait", wait)
        warm_up_network(checkpoint)
    return fused, lookups, passes


HALVES, FULL, WORDS, BYTES = (mx.zeros(2, dtype) for dtype in (mx.float16, mx.float32, mx.uint32, mx.uint8))
PACKED = {"e.weight": WORDS, "e.scales": HALVES, "e.biases": HALVES, "a": FULL}


@needs_fusing
@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "gpt_oss", "deepseek_v3"])
def test_what_a_network_fuses_was_fused_before_in_the_type_of_its_scales(monkeypatch, tmp_path, name):
    """The bug: activations and lookups were compiled before the first token, and float16 passed for bfloat16."""
    checkpoint = stored(tmp_path, name, PACKED, dtype="bfloat16")
    fused, lookups, passes = by_network(monkeypatch, tmp_path, checkpoint)
    assert (lookups, passes) == ([mx.float16, mx.uint32], [mx.float16, mx.float16])
    network = blank_network(checkpoint)
    network.set_dtype(mx.float16)
    asked = kernels(tmp_path, network(mx.array([[3, 4, 5]])))
    assert asked and asked <= fused


@pytest.mark.parametrize(
    ("tensors", "declared", "types"),
    [
        (PACKED, "float32", [mx.float32, mx.uint32]),
        ({"e.weight": WORDS, "e.scales": BYTES, "norm": HALVES}, "bfloat16", [mx.float16, mx.uint32, mx.uint8]),
        ({"e.weight": HALVES}, None, [mx.float16]),
        ({"e.weight": WORDS}, "bfloat16", [mx.bfloat16, mx.uint32]),
    ],
)
def test_a_row_of_each_stored_type_is_looked_up(monkeypatch, tmp_path, tensors, declared, types):
    checkpoint = stored(tmp_path, "qwen3", tensors, dtype=declared)
    assert by_network(monkeypatch, tmp_path, checkpoint)[1] == types


def test_a_warm_up_makes_none_of_the_networks_matrices(tmp_path):
    """Neither those of its layers, nor an embedding that is the output head as well: 60 MB in all."""
    sizes = {"vocab_size": 20_000, "hidden_size": 512, "intermediate_size": 4096, "tie_word_embeddings": True}
    assert_none_is_made(stored(tmp_path, "qwen3", PACKED, **sizes))


def test_a_warm_up_makes_no_matrices_of_hadamard_s(tmp_path):
    """They cannot be quantized once more, by which matrices were known, and were all multiplied."""
    text = architectures()["prism_hadamard_qwen35"].config["text_config"]
    wide = text | {"hidden_size": 1024, "intermediate_size": 16_384}
    assert_none_is_made(stored(tmp_path, "prism_hadamard_qwen35", PACKED, text_config=wide))


def assert_none_is_made(checkpoint):
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    warm_up_network(checkpoint)
    assert mx.get_peak_memory() - before < 4e6


# Products of packed matrices


def products(monkeypatch, work):
    """The products that `work` computes, by what is in their kernels' names (mlx/backend/metal/quantized.cpp)."""
    found, multiply, gather = set(), mx.quantized_matmul, mx.gather_qmm

    def note(name, x, words, group_size, bits, mode, rows):
        columns, outputs = x.shape[-1], words.shape[-2]
        kind = columns if columns in (64, 128) else columns % 512 == 0
        batch = words.ndim > 2 and name == "quantized_matmul"
        found.add((name, mode, bits, group_size, str(x.dtype), batch, kind, outputs % 8 == 0, rows))

    def quantized_matmul(x, words, scales, biases=None, transpose=True, group_size=64, bits=4, mode="affine"):
        if transpose:  # the other way a prompt's latents are multiplied
            note("quantized_matmul", x, words, group_size, bits, mode, x.shape[-2])
        return multiply(x, words, scales, biases, transpose, group_size, bits, mode)

    def gather_qmm(x, words, *rest, group_size, bits, mode, **more):
        note("gather_qmm", x, words, group_size, bits, mode, None)
        return gather(x, words, *rest, group_size=group_size, bits=bits, mode=mode, **more)

    with monkeypatch.context() as patch:
        patch.setattr(mx, "quantized_matmul", quantized_matmul)
        patch.setattr(mx, "gather_qmm", gather_qmm)
        work()
    return found


def passes(checkpoint):
    """Passes of each size that has kernels of its own; their graphs are built, which is when products are named."""
    network = load_network(checkpoint)
    for rows in range(1, 6):
        network(mx.array([[3] * rows]))


MIXED = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
PACKINGS = {
    "affine, 4": {"group_size": 32, "bits": 4},
    "affine, 6, groups of 64": {"group_size": 64, "bits": 6},
    "mxfp4": MIXED,
    "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
    "nvfp4": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
    "two": {"group_size": 64, "bits": 8, "lm_head": MIXED},
}


@pytest.mark.parametrize(
    ("name", "packing", "dtype"),
    [
        *(("qwen3", packing, "bfloat16") for packing in PACKINGS),
        ("qwen3", "affine, 4", "float16"),
        ("qwen3", "affine, 4", "float32"),
        ("qwen3_moe", "two", "bfloat16"),
        ("gpt_oss", "mxfp4", "bfloat16"),
        ("deepseek_v3", "affine, 4", "bfloat16"),
    ],
)
def test_what_a_packed_network_multiplies_was_multiplied_before_at_1_to_5_rows(
    monkeypatch, tmp_path, name, packing, dtype
):
    """The bug: the network of the warm-up is not packed, so the first verification built the kernels of 2 to 5 rows."""
    checkpoint = packed_as(tmp_path, architectures()[name].config, PACKINGS[packing], dtype)
    asked = products(monkeypatch, lambda: passes(checkpoint))
    done = products(monkeypatch, lambda: warm_up_network(checkpoint))
    assert len({rows for *_, rows in asked}) >= 5 and asked <= done


@pytest.mark.parametrize(
    ("group_size", "rows", "columns", "small"),
    [
        (64, 4096, 4096, (8, 512)),
        (64, 201_088, 2880, (8, 832)),
        (32, 5, 64, (13, 64)),
        (64, 1024, 128, (8, 128)),
        (64, 1024, 768, (8, 768)),
        (16, 4096, 4096, (4096, 512)),
        (16, 4088, 4096, (8, 512)),
    ],
)
def test_small_matrices_have_the_kernels_of_the_large_ones(monkeypatch, group_size, rows, columns, small):
    """By rows in eights, columns in 512s, 64 or 128 columns; on an M5 Max nvfp4's (groups of 16) from 4096 rows on."""
    sizes = set()
    monkeypatch.setattr(mx, "quantized_matmul", lambda x, words, *_, **__: sizes.add((len(words), x.shape[-1])) or x)
    scales = "U8" if group_size == 16 else "BF16"
    tensors = {
        "m.weight": Stored(Path("a"), "m.weight", "U32", (rows, columns // 8), rows * columns // 2),
        "m.scales": Stored(Path("b"), "m.scales", scales, (rows, columns // group_size), 0),  # in another file
    }
    warm_up_products(tensors, {"quantization": {"bits": 4, "group_size": group_size}}, "bfloat16")
    assert sizes == {small}


REAL = """
import json, os, pathlib, re
from fakes.dispatches import Table, logit_rows
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.warmup import compiling, warm_up, warm_up_network

device.fuses = lambda: True


def libraries():
    sources = pathlib.Path(os.environ["TMPDIR"]).rglob("*.cpp")
    return {re.sub(r"_(contiguous|strided_[0-9]+)$", "", source.stem) for source in sources}


SETTINGS = [
    ("block", Sampling(0.7, min_p=0.05)), ("block", Sampling(0.8, 0, 0.95, 0.0, 1.1, 0.2)),
    ("block", Sampling(0.7, 20, 0.8)), ("coupled", Sampling(0.7)), ("token", Sampling()),
]
found = []
for name, sampling in SETTINGS:
    if os.environ["WARM"]:
        with compiling(lambda: warm_up(name, sampling, 500, "bfloat16", True, True), print):
            pass
    found.append([len(libraries())])
    for k in (0, 1, 2, 5):
        rule = make_rule(name, Sampler(sampling, 1, [1, 2, 3], 500))
        target, draft = Table(logit_rows(40, 500)), Table(logit_rows(40, 500))
        drafters = Drafters(ModelDrafter(draft, 500, rule), k)
        for _ in decode(target, drafters, rule, [1, 2, 3], 12, frozenset(), float):
            pass
        found[-1].append(len(libraries()))
print(json.dumps(found))
"""


@needs_fusing
@pytest.mark.slow
@pytest.mark.parametrize("warm", ["yes", pytest.param("", marks=pytest.mark.full)])
def test_a_warmed_reply_compiles_nothing(tmp_path, warm):
    """By the CPU's libraries, which mlx names as Metal's, types and constants included. K was in a name: 31 of them."""
    environment = os.environ | {"TMPDIR": str(tmp_path), "WARM": warm, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, env=environment, check=True)
    for first, *later in json.loads(done.stdout.splitlines()[-1])[: None if warm else 2]:
        assert (set(later) == {first}) == bool(warm) and later[-1] == later[-2] > 3


# The thread


@pytest.fixture
def fusing(monkeypatch, device_says):
    """A device that fuses, and the threads that left it."""
    left = []
    device_says(fuses=True)
    monkeypatch.setattr(device, "leave_thread", lambda: left.append(current_thread()))
    return left


def test_kernels_are_compiled_while_the_weights_are_read_and_the_thread_leaves_the_device(fusing):
    reading, compiled, told = Event(), Event(), []

    def work():
        assert reading.wait(10)
        compiled.set()

    with compiling(work, told.append):
        reading.set()
        assert compiled.wait(10)
    assert len(fusing) == 1 and fusing[0] is not main_thread() and not fusing[0].is_alive() and not told


def test_kernels_that_take_longer_are_waited_for_and_a_line_says_so(fusing, monkeypatch):
    monkeypatch.setattr(warmup, "PATIENCE_SECONDS", 0.01)
    go, told = Event(), []

    def tell(sentence):
        told.append(sentence)
        go.set()

    with compiling(lambda: go.wait(10), tell):
        pass
    assert told == ["compiling kernels for this device: some seconds, and less the next time"]
    assert not fusing[0].is_alive()


@pytest.mark.parametrize(
    "error", [RuntimeError("[metal::Device] no library"), ValueError("[quantize] no group"), KeyError("model_type")]
)
def test_what_fails_in_it_is_the_replys_to_say_and_what_the_body_raises_passes(fusing, capfd, error):
    """The bug: what was no RuntimeError printed a traceback amid a good run."""

    def fail():
        raise error

    with pytest.raises(ValueError, match="damaged"), compiling(fail, print):
        raise ValueError("damaged")
    assert len(fusing) == 1 and capfd.readouterr() == ("", "")


def test_the_main_thread_asks_mlx_for_something_before_the_other_does(fusing, monkeypatch):
    """mlx takes the first one for its main thread."""
    asked = []
    monkeypatch.setattr(mx, "synchronize", lambda *_: asked.append(current_thread()))
    with compiling(lambda: device.settle(), print):
        pass
    assert asked[0] is main_thread() and asked[1] is fusing[0]


def test_a_device_that_does_not_fuse_compiles_nothing(device_says):
    device_says(fuses=False)
    with compiling(lambda: pytest.fail("compiled"), print):
        pass
