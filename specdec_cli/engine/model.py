"""A network and the memo of what it has read.

Law: the caches hold a prefix of the committed context, and nothing else once a round is committed. In meaning
`logits` is a pure function of its arguments; the memo only saves work.
Letters: K drafted tokens, T tokens fed at once, V vocabulary width.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from specdec_cli.engine.cache.quantized import kv_quantization
from specdec_cli.engine.cache.rollback import Caches, common_prefix

PREFILL_TOKENS = 512
REFED_TOKENS = 12


class CachedModel:
    """One network with its caches. `name` is for messages; `context_limit` is in tokens, None if unbounded."""

    def __init__(
        self,
        network: nn.Module,
        name: str,
        context_limit: int | None = None,
        kv_bits: int | None = None,
        reread: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """`reread` gives the network's parameters again, lazily: then `release` can drop the weights as well."""
        self._network = network
        self._reread = reread
        self._released = False
        self.kv = kv_quantization(network, kv_bits, name) if kv_bits else None
        self._caches = Caches(network, self.kv)
        self._read: list[int] = []
        self.name = name
        self.context_limit = context_limit
        self.width: int = self._lazily().shape[-1]
        # Bytes of the largest recurrent state, 0 without one.
        self.state_bytes: int = self._caches.state_bytes
        self._caches.reset()

    @property
    def length(self) -> int:
        """Positions in the caches, those queued on the device included."""
        return self._caches.length

    @property
    def network(self) -> nn.Module:
        """The network alone, for plain decoding with caches of its own."""
        return self._network

    @property
    def cache_kinds(self) -> tuple[str, ...]:
        return self._caches.kinds

    def cache_bytes(self, tokens: int, value_bytes: int) -> int:
        """Bytes of all caches once `tokens` have been read, `value_bytes` a value. Forgets what was read."""
        self._lazily()
        found = self._caches.bytes_at(tokens, PREFILL_TOKENS, value_bytes)
        self._caches.reset()
        return found

    def _lazily(self) -> mx.array:
        """Logits [1, V] of one token that are never computed: their graph is built for its shapes alone."""
        self._read.clear()
        self._caches.reset()
        return self.extend(mx.zeros((1,), mx.int32))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(value.nbytes for _, value in tree_flatten(self._network.parameters()))

    @property
    def dtype(self) -> str:
        """The type the network computes in, such as `float32`."""
        floats = [v.dtype for _, v in tree_flatten(self._network.parameters()) if mx.issubdtype(v.dtype, mx.floating)]
        return str(max(floats, key=floats.count)).removeprefix("mlx.core.")

    def release(self) -> None:
        """Give memory back: what was read is forgotten, and weights that can be read again wait for their next use."""
        if self._released:
            return
        self._read.clear()
        self._caches.reset()
        if self._reread is not None:
            self._network.update(self._reread())
        mx.clear_cache()
        self._released = True

    def reuse(self, context: Sequence[int]) -> int:
        """Roll back to the longest prefix of `context` that was read and can be returned to; its length in tokens."""
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
        self._caches.snapshot()

    def logits(self, context: Sequence[int], pending: mx.array) -> mx.array:
        """Logits [K + 1, V] after `context` and after each of the `pending` tokens [K], queued, not evaluated.

        Feeds what of `context` is not yet in the caches (at least its last token), so the cost on the host
        does not grow with the context. The caller commits what became true.
        """
        self.commit(context, min(self.length, len(context) - 1))
        if len(context) - self.length > REFED_TOKENS:
            # A rollback fell far behind: a pass of its own is a place that later rollbacks can return to.
            deque(self.prefill(context), maxlen=0)
        unread = mx.array(list(context[self.length :]))
        return self.extend(mx.concatenate([unread, pending]) if pending.size else unread)[-(pending.size + 1) :]

    def extend(self, tokens: mx.array) -> mx.array:
        """Feed `tokens` [T] behind whatever the caches hold: logits [T, V], queued, not evaluated.

        The one call of the network: a drafter that needs the target's hidden states would get them from here.
        """
        self._released = False
        with self._caches.feeding(tokens.size):
            logits: mx.array = self._network(tokens[None], cache=self._caches.layers)[0]
        return logits

    def commit(self, context: Sequence[int], length: int) -> None:
        """From now on the caches hold exactly `context[:length]`; later positions are rolled back.

        They may come to hold less, if that much was not fed or a cache can only go back further: the missing tokens
        are fed by the next `logits`.
        """
        length = self._caches.rollback(min(length, self.length))
        del self._read[length:]
        self._read += context[len(self._read) : length]
