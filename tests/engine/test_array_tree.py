"""Values with arrays in them, as JSON and back."""

import json

import mlx.core as mx
import pytest

from specdec_cli.engine.array_file import Unusable
from specdec_cli.engine.array_tree import ArrayNames, NamedArrays


def test_every_value_comes_back_and_what_was_one_array_is_one_again():
    one, other, names = mx.ones(2), mx.zeros(3), ArrayNames()
    value = [None, True, 3, 0.5, "text", (one, [other, one]), []]
    tree = json.loads(json.dumps(names.tree(value)))
    again = NamedArrays(names.arrays.__getitem__).value(tree)
    assert again[:5] == value[:5] and again[6] == []
    (first, (second, third)) = again[5]
    assert first is third and first is not second and mx.array_equal(second, other)
    assert isinstance(again[5], tuple) and len(names.arrays) == 2


def test_values_by_name_come_back():
    names = ArrayNames()
    trees = names.trees({"keys": mx.ones(2), "offset": 7})
    assert NamedArrays(names.arrays.__getitem__).values(trees)["offset"] == 7


@pytest.mark.parametrize("value", [object(), {1: 2}, {3}, mx.float32, lambda: 0])
def test_what_is_no_plain_value_cannot_be_kept(value):
    with pytest.raises(Unusable, match="cannot be kept"):
        ArrayNames().tree([value])


@pytest.mark.parametrize("tree", [{}, {"array": 3}, {"set": []}, {"list": 1}, {"tuple": None}, [], [1]])
def test_a_foreign_tree_is_refused(tree):
    with pytest.raises(Unusable):
        NamedArrays({}.__getitem__).value(tree)


def test_values_without_names_are_refused():
    with pytest.raises(Unusable):
        NamedArrays({}.__getitem__).values([1])
