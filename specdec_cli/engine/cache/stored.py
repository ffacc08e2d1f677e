"""Caches as JSON and named arrays, and back. Law: what does not have the form of this network's caches is refused.

A pass that could be taken back is not kept: there, only snapshots and what trimming reaches can be returned to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache

from specdec_cli.engine.array_file import Unusable
from specdec_cli.engine.array_tree import ArrayNames, NamedArrays, Tree
from specdec_cli.engine.cache.kinds import BOUNDED, TRIMMED
from specdec_cli.engine.cache.rollback import Held, Snapshot

# What changes as a cache reads; everything else about it is the network's.
MOVING = frozenset(("offset", "_start", "_shown", "start_position"))
ROWED = frozenset(kind.__name__ for kind in TRIMMED + BOUNDED)
TRIMMED_NAMES = frozenset(kind.__name__ for kind in TRIMMED)
ROWS = 2
"""The axis of a key's or value's positions."""
STATE_ROWS = 1
"""The axis on which a recurrent state may keep its last tokens: few at first."""


def tree_of(held: Held, names: ArrayNames) -> Tree:
    """JSON of `held`, whose arrays get `names`. Raises: Unusable for a kind of cache that cannot be kept."""
    return {
        "length": held.length,
        "kinds": list(held.kinds),
        "states": [names.trees(state) for state in held.states],
        "snapshots": [
            {"length": kept.length, "states": [names.trees(state) for state in kept.states]} for kept in held.snapshots
        ],
    }


def held_of(tree: Any, arrays: NamedArrays, like: Held) -> Held:
    """What `tree_of` made JSON of, for caches that are `like` these. Raises: Unusable."""
    try:
        length, kinds, states, snapshots = (tree[name] for name in ("length", "kinds", "states", "snapshots"))
        if type(length) is not int or tuple(kinds) != like.kinds:
            raise Unusable("it holds other kinds of caches")
        held = tuple(arrays.values(state) for state in states)
        kept = tuple(
            Snapshot(one["length"], tuple(arrays.values(state) for state in one["states"])) for one in snapshots
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise Unusable("its caches are of another form") from error
    _require_form(like, held, length, range(len(like.kinds)))
    # A snapshot has no states of what can always be trimmed: the others, bounded ones first, as in `Caches.snapshot`.
    untrimmed = [part for part, kind in enumerate(like.kinds) if kind not in TRIMMED_NAMES]
    parts = sorted(untrimmed, key=lambda part: like.kinds[part] not in ROWED)
    for snapshot in kept:
        if type(snapshot.length) is not int or not 0 < snapshot.length <= length:
            raise Unusable("a place in it lies beyond its end")
        _require_form(like, snapshot.states, snapshot.length, parts)
    return Held(length, like.kinds, held, kept)


def _require_form(like: Held, states: Sequence[dict[str, Any]], length: int, parts: Sequence[int]) -> None:
    """Raises: Unusable unless `states` are those of `parts` after `length` tokens."""
    if len(states) != len(parts):
        raise Unusable(f"it holds {len(states)} caches, and {len(parts)} are expected")
    for part, state in zip(parts, states, strict=True):
        kind, usual = like.kinds[part], like.states[part]
        if set(state) != set(usual):
            raise Unusable(f"a {kind} in it is of another version")
        for name, value in state.items():
            if name not in MOVING and not _alike(value, usual[name], kind):
                raise Unusable(f"{name} of a {kind} in it has another form")
        if kind in ROWED and state["keys"] is not None:
            _require_rows(kind, state, length)


def _alike(value: Any, usual: Any, kind: str) -> bool:
    """Whether both have the same structure, types and, but for the number of rows, sizes; plain values are equal."""
    if kind not in ROWED and kind != ArraysCache.__name__:
        return True
    found, expected = (dict(tree_flatten([one])) for one in (value, usual))
    return found.keys() == expected.keys() and all(
        _form(found[name], kind) == _form(expected[name], kind) for name in found
    )


def _form(value: Any, kind: str) -> Any:
    if not isinstance(value, mx.array):
        return value
    shape, rows = list(value.shape), ROWS if kind in ROWED else STATE_ROWS
    if len(shape) > rows:
        shape[rows] = 0
    return value.dtype, shape


def _require_rows(kind: str, state: dict[str, Any], length: int) -> None:
    rows = {array.shape[ROWS] for _, array in tree_flatten([state["keys"], state["values"]])}
    first = state.get("_start", state.get("start_position", 0))
    used = state["offset"] - first
    enough = rows == {used} if kind in TRIMMED_NAMES else 0 < used <= min(rows)
    if state["offset"] != length or not enough:
        raise Unusable(f"a {kind} in it holds {sorted(rows)} positions up to {state['offset']}, and not {length}")
