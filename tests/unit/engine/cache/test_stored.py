"""Caches that were kept and taken up again are those that they were."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx
import pytest

from conformance.architectures import architectures, tiny_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.stored import Unusable, pack, read_facts, read_values, write

FEW = ("qwen3", "gemma3_text", "qwen3_5")
KINDS = ("llama4", "mamba2", "rwkv7", "baichuan_m1", "falcon_h1", "deepseek_v41", "gemma3n")  # each its caches
EACH = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.slow if name in KINDS else pytest.mark.full)
    for name, found in architectures().items()
    if not found.metal_only
]


def ids(tokens, seed=0):
    return [(seed + 7 * i + i * i) % 60 for i in range(tokens)]


def fed(network, tokens, marks=(), kv_bits=None):
    """A model that read `tokens`, with a snapshot at each of `marks`, and went back a little."""
    model = CachedModel(network, "tiny", kv_bits=kv_bits)
    model.mark(marks, 8)
    for _ in model.prefill([*tokens, 1]):
        pass
    mx.eval(model.outputs([*tokens, 1], mx.array([2, 3])).logits)
    model.commit([*tokens, 1, 2], len(tokens) + 2)
    return model


def written(path, facts, values):
    with path.open("wb") as file:
        for _ in write(file, pack(facts, values)):
            pass
    return path


def read_all(path):
    steps = read_values(path)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def taken_up(network, model, kv_bits=None):
    """Another model with what a file of `model` gives back: nothing is shared."""
    again = CachedModel(network, "tiny", kv_bits=kv_bits)
    with TemporaryDirectory() as folder:
        again.restore(read_all(written(Path(folder) / "file", {}, model.stored())))
    return again


@pytest.mark.parametrize("name", EACH)
def test_they_go_on_to_the_same_logits(name):
    """Bit for bit: at the end, and from each place that can be returned to."""
    found = architectures()[name]
    network, tokens = tiny_network(found, 1), ids(40)
    model = fed(network, tokens, (11, 25))
    for back in (len(model.read), 26, 11):
        one, other = fed(network, tokens, (11, 25)), taken_up(network, model)
        context = [*model.read[:back], *ids(5, 9)]
        assert other.reach(context) <= one.reach(context)
        lengths = [each.reuse(context) for each in (one, other)]
        if lengths[0] == lengths[1]:
            logits = [each.logits(context, mx.array([4, 5])) for each in (one, other)]
            assert mx.array_equal(*logits)
        assert list(other.read) == context[: lengths[1]]


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_caches_go_on_to_the_same_logits(bits):
    small = architectures()["qwen3"]
    network = tiny_network(replace(small, config=small.config | {"head_dim": 64}), 1)
    model = fed(network, ids(40), kv_bits=bits)
    context = [*ids(40), 1, 2, 5]
    again = taken_up(network, model, bits)
    assert again.reuse(context) == model.reuse(context) == 42
    assert mx.array_equal(again.logits(context, mx.array([4])), model.logits(context, mx.array([4])))
    with pytest.raises(Unusable, match="other kinds of caches"):
        taken_up(network, model)


def test_a_file_gives_back_what_was_packed_and_nothing_once_a_byte_of_it_changed(tmp_path):
    array = mx.arange(12).reshape(3, 4).astype(mx.bfloat16)
    values = {"a": [array, None, (1.5, True)], "b": {"c": array, "d": "text"}, "e": mx.zeros((0, 3))}
    path = written(tmp_path / "file", {"facts": [1]}, values)
    whole = path.read_bytes()
    assert path.stat().st_size == pack({"facts": [1]}, values).nbytes and read_facts(path) == {"facts": [1]}
    again = read_all(path)
    assert again["a"][0] is again["b"]["c"] and mx.array_equal(again["a"][0], array)
    assert (again["a"][1:], again["b"]["d"], again["e"].shape) == ([None, [1.5, True]], "text", (0, 3))
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(Unusable):
            read_all(path)
    for damaged in (b"", whole[:5], whole[:-1], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(Unusable):
            read_facts(path)
            read_all(path)
    with pytest.raises(Unusable):
        pack({}, {"a": object()})
