"""How many arrays are read at once, by what is given to `mx.eval`."""

import mlx.core as mx
from mlx.utils import tree_flatten


def watch(monkeypatch):
    """Numbers of arrays, one for each evaluation from now on."""
    counts, compute = [], mx.eval

    def evaluate(*trees):
        counts.append(sum(isinstance(array, mx.array) for _, array in tree_flatten(list(trees))))
        compute(*trees)

    monkeypatch.setattr(mx, "eval", evaluate)
    return counts
