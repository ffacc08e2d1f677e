"""A network and the memo of what it has read.

Law: the caches hold a prefix of the committed context, and nothing else once a round is committed. In meaning
`logits` is a pure function of its arguments; the memo only saves work.
Letters: K drafted tokens, T tokens fed at once, V vocabulary width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from specdec_cli.engine.caches import Caches, common_prefix

PREFILL_TOKENS = 512


class CachedModel:
    """One network with its caches. `name` is for messages; `context_limit` is in tokens, None if unbounded."""

    def __init__(self, network: nn.Module, name: str, context_limit: int | None = None) -> None:
        self._network = network
        self._caches = Caches(network)
        self._caches.check(name)
        self._read: list[int] = []
        self.name = name
        self.context_limit = context_limit
        # Lazy: this builds a graph for its shape and never runs it.
        self.width: int = network(mx.zeros((1, 1), mx.int32), cache=Caches(network).layers).shape[-1]

    @property
    def length(self) -> int:
        """Positions in the caches, those queued on the device included."""
        return self._caches.length

    @property
    def cache_kinds(self) -> tuple[str, ...]:
        return self._caches.kinds

    @property
    def dtype(self) -> str:
        """The type the network computes in, such as `float32`."""
        floats = [v.dtype for _, v in tree_flatten(self._network.parameters()) if mx.issubdtype(v.dtype, mx.floating)]
        return str(max(floats, key=floats.count)).removeprefix("mlx.core.")

    def reuse(self, context: Sequence[int]) -> int:
        """Roll back to the longest common prefix of `context` and what was read; returns its length in tokens."""
        self.commit(context, min(common_prefix(self._read, context), len(context) - 1))
        return self.length

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        """Read all but the last token of `context`, PREFILL_TOKENS at a time; yields the tokens read so far.

        Closing the iterator between chunks leaves a consistent memo.
        """
        while self.length < len(context) - 1:
            chunk = context[self.length : min(self.length + PREFILL_TOKENS, len(context) - 1)]
            self.extend(mx.array(list(chunk)))
            self._caches.evaluate()
            mx.clear_cache()
            self.commit(context, self.length)
            yield self.length

    def logits(self, context: Sequence[int], pending: mx.array) -> mx.array:
        """Logits [K + 1, V] after `context` and after each of the `pending` tokens [K], queued, not evaluated.

        Feeds what of `context` is not yet in the caches (at least its last token), so the cost on the host
        does not grow with the context. The caller commits what became true.
        """
        self.commit(context, min(self.length, len(context) - 1))
        unread = mx.array(list(context[self.length :]))
        return self.extend(mx.concatenate([unread, pending]) if pending.size else unread)[-(pending.size + 1) :]

    def extend(self, tokens: mx.array) -> mx.array:
        """Feed `tokens` [T] behind whatever the caches hold: logits [T, V], queued, not evaluated.

        The one call of the network: a drafter that needs the target's hidden states would get them from here.
        """
        try:
            logits: mx.array = self._network(tokens[None], cache=self._caches.layers)[0]
        except BaseException:
            # Layers may have grown unevenly: memo and caches no longer agree.
            self._caches.reset()
            self._read.clear()
            raise
        self._caches.grown(tokens.size)
        return logits

    def commit(self, context: Sequence[int], length: int) -> None:
        """From now on the caches hold exactly `context[:length]`; later positions are rolled back.

        `length` beyond what was fed is cut to it: the missing tokens are fed by the next `logits`.
        """
        length = min(length, self.length)
        self._caches.trim(self.length - length)
        del self._read[length:]
        self._read += context[len(self._read) : length]
