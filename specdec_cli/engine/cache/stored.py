"""A conversation's contents as bytes: its arrays as mlx writes them, and an outline of all else for JSON."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx


def as_bytes(contents: Any) -> tuple[Any, io.BytesIO]:
    """(its outline, the arrays as safetensors). Raises: TypeError for contents that are neither."""
    arrays, data = dict[str, mx.array](), io.BytesIO()
    outline = _outlined(contents, arrays, {})
    mx.save_safetensors(data, arrays)
    return outline, data


def read_arrays(outline: Any, path: Path) -> Any:
    """The contents of which `as_bytes` made this outline and the file. Raises: whatever mlx raises."""
    arrays = mx.load(str(path))
    assert isinstance(arrays, dict)
    mx.eval(arrays)
    return _filled(outline, arrays)


def _outlined(value: Any, arrays: dict[str, mx.array], names: dict[int, str]) -> Any:
    """`value` for JSON: in the place of each array its name in `arrays`; what is one array is written once.

    Raises: TypeError for what is neither.
    """
    if isinstance(value, mx.array):
        name = names.setdefault(id(value), str(len(names)))
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Mapping):
        return {str(key): _outlined(one, arrays, names) for key, one in value.items()}
    if isinstance(value, list | tuple):
        found = [_outlined(one, arrays, names) for one in value]
        return {"tuple": found} if isinstance(value, tuple) else found
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a cache holds a {type(value).__name__}")


def _filled(outline: Any, arrays: Mapping[str, mx.array]) -> Any:
    """What `_outlined` was given."""
    match outline:
        case {"array": name, **rest} if not rest:
            return arrays[name]
        case {"tuple": list(found), **rest} if not rest:
            return tuple(_filled(one, arrays) for one in found)
        case dict():
            return {key: _filled(one, arrays) for key, one in outline.items()}
        case list():
            return [_filled(one, arrays) for one in outline]
    return outline
