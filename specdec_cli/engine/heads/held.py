"""What a head holds of a conversation, as JSON and named arrays, and back. Law: its states are those of its ids.

Letters: T states that wait to be read, D the target's hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from specdec_cli.engine.array_file import Unusable
from specdec_cli.engine.array_tree import ArrayNames, NamedArrays, Tree
from specdec_cli.engine.heads.mtp import Step


@dataclass(frozen=True, slots=True)
class HeldHead:
    """`cache` are its cache's attributes, `waiting` states [T, D], `last` the last step where none waits."""

    context: Sequence[int]
    cache: Mapping[str, Any]
    waiting: mx.array | None
    last: Step | None


def tree_of(held: HeldHead, names: ArrayNames) -> Tree:
    """JSON of all but the context; its arrays get `names`."""
    last = (held.last.scored, held.last.carried) if held.last else None
    return {"cache": names.trees(held.cache), "waiting": names.tree(held.waiting), "last": names.tree(last)}


def held_of(tree: Any, context: Sequence[int], arrays: NamedArrays, size: int) -> HeldHead:
    """What `tree_of` made JSON of, of a target with states of `size`. Raises: Unusable."""
    try:
        cache, waiting, last = arrays.values(tree["cache"]), arrays.value(tree["waiting"]), arrays.value(tree["last"])
        entries = 0 if cache["keys"] is None else cache["keys"].shape[2]
        unread = 0 if waiting is None else waiting.shape[0]
        step = None if last is None else Step(*last)
        states = [waiting, *(last or ())]
        widths = {one.shape[-1] for one in states if one is not None}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise Unusable("the head's cache in it is of another form") from error
    if cache.keys() != vars(KVCache()).keys():
        raise Unusable("the head's cache in it is of another version")
    if cache["offset"] != entries or entries + unread != max(len(context) - 1, 0) or not widths <= {size}:
        raise Unusable(f"the head's cache in it holds {entries} and {unread} entries of {len(context)} tokens")
    return HeldHead(context, cache, waiting, step)
