"""Caches that were kept and taken up again are those that they were."""

import json
from dataclasses import replace

import mlx.core as mx
import pytest

from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.array_file import Unusable
from specdec_cli.engine.array_tree import ArrayNames, NamedArrays
from specdec_cli.engine.conformance.networks import tiny_network
from specdec_cli.engine.model import CachedModel

FEW = ("qwen3", "gemma3_text", "qwen3_5")
EACH = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.slow)
    for name, found in architectures().items()
    if found.config and not found.metal_only
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


def kept(model):
    """(tree, arrays) as a file gives them back: nothing is shared with `model`."""
    names = ArrayNames()
    tree = json.loads(json.dumps(model.stored(names)))
    return tree, {name: mx.array(array) for name, array in names.arrays.items()}


def taken_up(network, model, kv_bits=None, change=lambda tree: tree):
    again = CachedModel(network, "tiny", kv_bits=kv_bits)
    tree, arrays = kept(model)
    again.restore(list(model.read), change(tree), NamedArrays(arrays.__getitem__))
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


@pytest.mark.parametrize("name", FEW)
def test_places_are_those_that_a_rollback_reaches(name):
    network = tiny_network(architectures()[name], 1)
    model = taken_up(network, fed(network, ids(400), (11, 25)))
    floor, places = model.places
    end = len(model.read)
    for length in range(end + 1):
        expected = length if length >= floor else max((at for at in places if at <= length), default=0)
        assert model.reach([*model.read[:length], 63, 63]) == expected
    assert (floor == 0) == (name == "qwen3") and (floor == end) == (name == "qwen3_5")


def test_what_is_kept_has_no_room_for_tokens_to_come():
    model = fed(tiny_network(architectures()["qwen3"], 1), ids(40))
    rows = {array.shape[2] for array in kept(model)[1].values()}
    assert rows == {42}


def damaged(name, value):
    def change(tree):
        at = tree
        *way, last = name
        for step in way:
            at = at[step]
        at[last] = value
        return tree

    return change


@pytest.mark.parametrize(
    "change",
    [
        damaged(("length",), 41),
        damaged(("length",), "42"),
        damaged(("kinds",), ["KVCache"]),
        damaged(("states",), []),
        damaged(("states", 0, "offset"), 43),
        damaged(("states", 0, "offset"), True),
        damaged(("states", 0, "keys"), {"array": "none"}),
        damaged(("states", 0, "keys"), 5),
        damaged(("states", 0), {}),
        damaged(("states", 0, "more"), 5),
        damaged(("snapshots",), [{"length": 99, "states": []}]),
        damaged(("snapshots",), [{}]),
        damaged(("snapshots",), 7),
        lambda tree: None,
        lambda tree: [],
        lambda tree: {},
    ],
)
def test_another_form_is_refused_and_nothing_is_held(change):
    network = tiny_network(architectures()["qwen3"], 1)
    model = fed(network, ids(40))
    again = CachedModel(network, "tiny")
    tree, arrays = kept(model)

    def read(name):
        if name not in arrays:
            raise Unusable("no such array")
        return arrays[name]

    with pytest.raises(Unusable):
        again.restore(list(model.read), change(tree), NamedArrays(read))
    assert again.length == 0 and not again.read


@pytest.mark.parametrize("name", FEW)
def test_another_networks_caches_are_refused(name):
    """Other heads, other layers, other kinds."""
    small = architectures()["qwen3"]
    wide = replace(small, config=small.config | {"head_dim": 64})
    deep = replace(small, config=small.config | {"num_hidden_layers": 5})
    model = fed(tiny_network(architectures()[name], 1), ids(40))
    for other in (wide, deep):
        with pytest.raises(Unusable):
            taken_up(tiny_network(other, 1), model)


@pytest.mark.parametrize("read", [ids(41), [*ids(40), 1, 2, 3], [-1] * 42])
def test_ids_that_are_not_those_of_the_caches_are_refused(read):
    network = tiny_network(architectures()["qwen3"], 1)
    tree, arrays = kept(fed(network, ids(40)))
    with pytest.raises(Unusable):
        CachedModel(network, "tiny").restore(read, tree, NamedArrays(arrays.__getitem__))
