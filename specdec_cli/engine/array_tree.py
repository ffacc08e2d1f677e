"""Values with arrays in them as JSON and named arrays, and back. Law: what was one array is one again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx

from specdec_cli.engine.array_file import Unusable

Tree = Any
"""JSON: a plain value is itself, an array {"array": name}, a list {"list": [...]}, a tuple {"tuple": [...]}."""
PLAIN = (bool, int, float, str, type(None))


class ArrayNames:
    """Gives each array a name; `arrays` holds those that got one."""

    def __init__(self) -> None:
        self.arrays: dict[str, mx.array] = {}
        self._names: dict[int, str] = {}

    def keep_ids(self, name: str, ids: Sequence[int]) -> None:
        """The ids [N] under a name of their own, which is no number."""
        self.arrays[name] = mx.array(list(ids), dtype=mx.int32)

    def tree(self, value: Any) -> Tree:
        """Raises: Unusable for a value that is neither plain nor made of arrays."""
        if isinstance(value, mx.array):
            name = self._names.setdefault(id(value), str(len(self.arrays)))
            self.arrays[name] = value
            return {"array": name}
        if type(value) in PLAIN:
            return value
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.tree(item) for item in value]}
        raise Unusable(f"a {type(value).__name__} cannot be kept")

    def trees(self, values: Mapping[str, Any]) -> dict[str, Tree]:
        """As `tree`, of each value."""
        return {name: self.tree(value) for name, value in values.items()}


class NamedArrays:
    """Reads arrays by name, each once."""

    def __init__(self, read: Callable[[str], mx.array]) -> None:
        self._read = read
        self._known: dict[str, mx.array] = {}

    def value(self, tree: Tree) -> Any:
        """What became `tree`. Raises: Unusable."""
        if type(tree) in PLAIN:
            return tree
        match tree:
            case {"array": str(name)}:
                if name not in self._known:
                    self._known[name] = self._read(name)
                return self._known[name]
            case {"list": list(items)}:
                return [self.value(item) for item in items]
            case {"tuple": list(items)}:
                return tuple(self.value(item) for item in items)
        raise Unusable("a value in it is of another kind")

    def values(self, trees: Any) -> dict[str, Any]:
        """As `value`, of each. Raises: Unusable."""
        if not isinstance(trees, dict):
            raise Unusable("values by name are missing")
        return {str(name): self.value(tree) for name, tree in trees.items()}
