"""What a loaded pair can take on: context and memory. Pure numbers, which stay true while the models are away.

All sizes in bytes, all lengths in tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from specdec_cli.core.format import percent, size
from specdec_cli.engine import device
from specdec_cli.engine.heads.cached_head import CachedHead
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.limits import LONGEST, TIGHT_SHARE, ContextLimit, limit_bytes
from specdec_cli.session.session import LoadedPair

# Caches are sized at these lengths; between two of them they grow in a straight line, or not at all.
SHORTEST = 1024
# Snapshots that a slot keeps where caches cannot be trimmed: a few ends of turns, and a few on the way there. They may
# take a small share of the memory beside the weights: those of wide windows are large.
MOST_SNAPSHOTS, LEAST_SNAPSHOTS, SNAPSHOT_SHARE = 8, 2, 1 / 16


@dataclass(frozen=True, slots=True)
class Capacity:
    """`caches` are (length, bytes) of one conversation of that length, ascending; `limit_bytes` is what may be used.

    `target_caches` are those of the target alone, without snapshots. `snapshots` are how many a slot is to keep where
    caches cannot be trimmed; `caches` count them. `relief` says what makes room, without loading another pair.
    """

    weight_bytes: int
    limit_bytes: int
    caches: tuple[tuple[int, int], ...]
    target_caches: tuple[tuple[int, int], ...] = ((0, 0),)
    snapshots: int = LEAST_SNAPSHOTS
    context: ContextLimit = field(default_factory=ContextLimit)
    relief: str = ""

    @property
    def memory_tokens(self) -> int | None:
        """The longest conversation that fits beside the weights; None where the memory bounds none.

        Nor does it where not even a short one fits: whoever loaded such a pair was told, and wants it all the same.
        """
        left = self.limit_bytes - self.weight_bytes
        if self.cache_bytes(SHORTEST) > left or self.cache_bytes(LONGEST) <= left:
            return None
        return bisect_right(range(LONGEST), left, key=self.cache_bytes) - 1

    def warning(self, cache_bytes: int) -> str:
        """What to say once caches of so many bytes leave little room beside the weights; empty before."""
        share = (self.weight_bytes + cache_bytes) / self.limit_bytes
        return f"memory {percent(share)} of {size(self.limit_bytes)}: {self.relief}" if share >= TIGHT_SHARE else ""

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of one conversation of so many tokens."""
        return _bytes_at(self.caches, tokens)

    def row_bytes(self, tokens: int, shares_steps: bool) -> int:
        """Of a row in shared passes: what the target attends to; the draft's caches too, if it `shares_steps`."""
        return _bytes_at(self.caches if shares_steps else self.target_caches, tokens)


def _bytes_at(sizes: tuple[tuple[int, int], ...], tokens: int) -> int:
    place = min(bisect_left(sizes, (tokens, 0)), len(sizes) - 1)
    (low, low_bytes), (high, high_bytes) = sizes[max(place - 1, 0)], sizes[place]
    if tokens <= low or low == high:
        return low_bytes
    return low_bytes + (high_bytes - low_bytes) * (tokens - low) // (high - low)


def capacity_of(pair: LoadedPair, usable_bytes: int | None = None) -> Capacity:
    """Measured on the models' own caches, built lazily and never computed."""
    slot, target, draft = pair.slot(), pair.first.target, pair.first.draft
    head = draft if isinstance(draft, CachedHead) else None
    models = [model for model in (slot.target, slot.draft) if isinstance(model, CachedModel)]

    def held(tokens: int) -> int:
        return sum(model.cache_bytes(tokens, 4 if model.dtype == "float32" else 2) for model in models)

    weight_bytes = slot.weight_bytes
    limit = limit_bytes(device.usable_bytes() if usable_bytes is None else usable_bytes)
    sizes = []
    for kept in (LEAST_SNAPSHOTS, LEAST_SNAPSHOTS + 1):
        slot.mark((), (), kept)
        sizes.append(held(LONGEST))
    affordable = int((limit - weight_bytes) * SNAPSHOT_SHARE) // max(sizes[1] - sizes[0], 1)
    snapshots = max(LEAST_SNAPSHOTS, min(affordable, MOST_SNAPSHOTS))
    slot.mark((), (), snapshots)
    longest = target.context_limit or LONGEST
    lengths = [SHORTEST]
    while lengths[-1] < longest:
        lengths.append(min(2 * lengths[-1], longest))

    def held_by_head(tokens: int) -> int:
        """Its cache is of one layer, like one of the target's."""
        return held(min(tokens, 2 * head.recent if head.recent else tokens)) // target.layers if head else 0

    relief = [] if target.network.kv else ["--kv-bits 8 shrinks the caches"]
    relief += (
        [f"--drafter none frees {size(draft.weight_bytes)} and the draft's caches"] if draft and head is None else []
    )
    caches = tuple((length, held(length) + held_by_head(length)) for length in lengths)
    slot.target.mark((), 0)
    value_bytes = 4 if target.dtype == "float32" else 2
    return Capacity(
        weight_bytes=weight_bytes,
        limit_bytes=limit,
        caches=caches,
        target_caches=tuple((length, slot.target.cache_bytes(length, value_bytes)) for length in lengths),
        snapshots=snapshots,
        context=pair.context,
        relief=", ".join([*relief, "--max-context N bounds them"]),
    )
