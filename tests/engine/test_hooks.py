"""Watched modules: only the calls of the watched one change, and mlx sees the same tree."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from specdec_cli.engine.hooks import hook


class Scaled(nn.Module):
    """Times a weight."""

    def __init__(self):
        super().__init__()
        self.weight = mx.array([2.0])

    def __call__(self, x, *, plus=0.0):
        return x * self.weight + plus


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Scaled(), Scaled()

    def __call__(self, x):
        return self.second(self.first(x), plus=1.0)


def recorder(calls, name="", change=lambda output: output):
    def handle(module, original, args, kwargs):
        calls.append((name, module, args, dict(kwargs)))
        return change(original(module, *args, **kwargs))

    return handle


def test_the_handler_gets_the_module_its_arguments_and_its_own_call():
    network, calls = Two(), []
    hook(network.second, recorder(calls))
    assert network(mx.array([3.0])).tolist() == [13.0]
    ((_, module, (x,), kwargs),) = calls
    assert (module is network.second, x.tolist(), kwargs) == (True, [6.0], {"plus": 1.0})


def test_watching_twice_nests_and_the_later_one_is_outside():
    network, calls = Two(), []
    for name in ("inner", "outer"):
        hook(network.first, recorder(calls, name))
    assert network(mx.array([3.0])).tolist() == [13.0]
    assert [name for name, *_ in calls] == ["outer", "inner"]


def test_mlx_sees_the_same_names_parameters_and_modules():
    plain, watched = Two(), Two()
    hook(watched.first, recorder([]))
    hook(watched, recorder([]))
    assert [path for path, _ in tree_flatten(watched.parameters())] == [p for p, _ in tree_flatten(plain.parameters())]
    assert [path for path, _ in watched.named_modules()] == [path for path, _ in plain.named_modules()]
    assert type(watched.first).__name__ == "Scaled" and watched.keys() == plain.keys()
    watched.update({"first": {"weight": mx.array([5.0])}})
    np.testing.assert_array_equal(np.array(watched(mx.array([1.0]))), [11.0])


def test_what_the_handler_returns_is_what_the_call_returns():
    network = Two()
    hook(network.first, recorder([], change=lambda output: output + 1))
    assert network(mx.array([3.0])).tolist() == [15.0]


def test_another_module_of_the_same_class_is_left_alone():
    network, calls = Two(), []
    hook(network.first, recorder(calls))
    assert type(network.second) is Scaled and isinstance(network.first, Scaled)
    network.second(mx.array([1.0]))
    assert calls == []
