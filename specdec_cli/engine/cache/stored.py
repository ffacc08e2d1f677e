"""A conversation's contents as bytes: its arrays as mlx writes them, and all else as an outline for JSON."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten


def as_bytes(contents: Any) -> tuple[dict[str, Any], io.BytesIO]:
    """(all values by path, but for arrays; the arrays as safetensors)."""
    values, data = dict(tree_flatten(contents, is_leaf=_is_plain)), io.BytesIO()
    arrays = {path: value for path, value in values.items() if isinstance(value, mx.array)}
    mx.save_safetensors(data, arrays)
    return {path: value for path, value in values.items() if path not in arrays}, data


def read_contents(outline: dict[str, Any], file: Path) -> Any:
    """The contents of which `as_bytes` made these; tuples are lists. Raises: whatever mlx raises."""
    arrays = mx.load(str(file))
    assert isinstance(arrays, dict)
    mx.eval(arrays)
    return tree_unflatten([*outline.items(), *arrays.items()])


def _is_plain(value: Any) -> bool:
    """Whether it is a list of numbers, or an empty one, which has no path."""
    return isinstance(value, list | tuple) and not any(isinstance(one, mx.array | list | tuple | dict) for one in value)
