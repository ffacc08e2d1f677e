"""A network in memory, and one conversation's caches over it with the memo of what was read.

Law: the caches hold a prefix of the committed context, and nothing else once a round is committed. In meaning
`logits` is a pure function of its arguments; the memo only saves work. A draft's caches may begin later instead, at
most twice `recent` tokens before the end: positions are then counted from there, and what lies before is as if it had
never been (a fresh short context, read anew every `recent` tokens: a rolling window would need positions the draft was
not trained for). Quantized caches are quantized from the first
token on, so that logits depend on the tokens alone, never on how they were cut into passes (mlx-lm converts after the
first chunk of the prompt instead). Letters: K drafted tokens, T tokens fed at once, V vocabulary size, D hidden size.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache

from specdec_cli.core.errors import Refused, SpecdecError, reason
from specdec_cli.core.kinds import MODEL
from specdec_cli.core.request import MAX_ROWS, MAX_UNREAD
from specdec_cli.engine import device
from specdec_cli.engine.cache.cache_kinds import KEPT_SNAPSHOTS, KVQuantization, leaves
from specdec_cli.engine.cache.rollback import Caches, common_prefix
from specdec_cli.engine.cache.shown import Shown, owners, shown
from specdec_cli.engine.device import READ_TOKENS, clear_cache
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.experts import bytes_read, read_shares
from specdec_cli.engine.hidden import HiddenStates
from specdec_cli.models.packing import bits_a_weight

GROUP_SIZES = (64, 32)
# What layers of mlx-lm call their numbers of query heads, and of key heads.
HEADS = ("n_heads", "num_attention_heads", "num_heads", "n_head"), ("n_kv_heads", "num_key_value_heads", "num_kv_heads")
WITHOUT = "leave --kv-bits out"
OUTER = re.compile(r"embed|lm_head")


def kv_quantization(network: nn.Module, bits: int, name: str) -> KVQuantization:
    """The largest groups that fit `network`'s heads. Window and recurrent layers stay as they are.

    Raises: Refused if it keeps no plain KV cache, or if its attention cannot read a quantized one.
    """
    why = ""
    for group_size in GROUP_SIZES:
        found = KVQuantization(bits, group_size)
        caches = Caches(network, found)
        if not any(type(part) is QuantizedKVCache for part in leaves(caches.layers)):
            raise Refused(f"{name} keeps {', '.join(caches.kinds)}, which --kv-bits cannot quantize", WITHOUT)
        try:
            network(mx.zeros((1, 2), mx.int32), cache=caches.layers)
            return found
        except (ValueError, TypeError, AttributeError, RuntimeError) as error:
            why = reason(error)
    raise Refused(f"{name} does not run on a KV cache of {bits} bits: {why}", WITHOUT)


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The result of one pass over T tokens: logits [T, V], and what the output head read [T, D] if exposed. Lazy."""

    logits: mx.array
    hidden: mx.array | None = None

    def last(self, rows: int) -> Output:
        """The last `rows` rows."""
        return Output(self.logits[-rows:], None if self.hidden is None else self.hidden[-rows:])

    def of(self, row: int, tokens: int) -> Output:
        """The first `tokens` of one conversation's, where this is of B of them: [B, T, V], [B, T, D]."""
        return Output(self.logits[row, :tokens], None if self.hidden is None else self.hidden[row, :tokens])


class SharedRow(Protocol):
    """A conversation's row in passes that it shares with others."""

    def take_back(self, count: int) -> None:
        """The last `count` tokens that it fed were rejected."""

    @property
    def length(self) -> int:
        """Tokens that it holds."""

    def join(self, caches: Caches) -> None:
        """Take a row behind what `caches` hold."""

    def leave(self, caches: Caches, length: int) -> None:
        """Give it back; `caches` then hold its first `length` tokens."""


Agreed = Callable[[mx.array], mx.array]


def own(values: mx.array) -> mx.array:
    """What one process alone agrees on: its own `values`."""
    return values


class Network:
    """Weights in memory, shared by all conversations. `name` is for messages; `context_limit` is in tokens."""

    def __init__(
        self,
        network: nn.Module,
        name: str,
        context_limit: int | None = None,
        kv_bits: int | None = None,
        reread: Callable[[], Mapping[str, Any]] | None = None,
        recent: int | None = None,
    ) -> None:
        """`context_limit` None is unbounded. `reread` gives the parameters again, lazily: then weights can be dropped.

        `recent`: of a context at most so many of the last tokens are read at once, and about twice as many held; None:
        all of it is. Raises: Refused if caches cannot be quantized to `kv_bits`.
        """
        self.module, self.name, self.context_limit, self.recent = network, name, context_limit, recent
        parameters = [value for _, value in tree_flatten(network.parameters())]
        floats = [value.dtype for value in parameters if mx.issubdtype(value.dtype, mx.floating)]
        self.weight_bytes: int = sum(value.nbytes for value in parameters)
        # [path of what is not read whole] = the share of it that a step reads.
        token = mx.zeros((1, 1), mx.int32)
        self.read_shares = read_shares(network, lambda: network(token, cache=make_prompt_cache(network)))
        self._read = bytes_read(network, self.read_shares)
        self.step_bytes = round(sum(self._read.values()))
        # The type the network computes in, such as `float32`.
        self.dtype = str(max(floats, key=floats.count)).removeprefix("mlx.core.")
        self.kv = kv_quantization(network, kv_bits, name) if kv_bits else None
        # Positions that it has learned, one by one, None for a rope, which has no end.
        learned = (module for path, module in network.named_modules() if path.endswith("wpe"))
        self.positions: int | None = next((module.weight.shape[0] for module in learned), None)
        self.hidden = HiddenStates(network, name)
        # By kind of attention, whose cache the last layer of that kind reads.
        self.owners = owners(network)
        # What is chosen by its values: in a group of ranks, rank 0's choice (`engine.group`).
        self.agreed: Agreed = own
        self._reread = reread
        self._in_use = True

    def forward(self, tokens: mx.array, caches: Caches) -> Output:
        """Feed `tokens` [T] after whatever `caches` hold."""
        self._in_use = True
        with caches.feeding(tokens.size):
            logits: mx.array = self.module(tokens[None], cache=caches.layers)[0]
        hidden = self.hidden.take()
        return Output(logits, None if hidden is None else hidden[0])

    def forward_rows(self, tokens: mx.array, layers: Sequence[Any]) -> Output:
        """Feed `tokens` [B, T], T to each conversation whose row `layers` hold: logits [B, T, V]."""
        self._in_use = True
        return Output(self.module(tokens, cache=layers), self.hidden.take())

    def release(self) -> None:
        """Drop weights that can be read again; they are read again, lazily, at their next use.

        Wired ones stay: caches would be wired in their place. So do those whose files are gone.
        """
        if self._in_use and self._reread is not None and not device.wires():
            with suppress(OSError, SpecdecError):
                self.module.update(self._reread())
        clear_cache()
        self._in_use = False

    @property
    def expert_share(self) -> float:
        """The share of experts in what a step reads."""
        return sum(read for name, read in self._read.items() if self._of_experts(name)) / self.step_bytes

    def _of_experts(self, parameter: str) -> bool:
        return parameter.rpartition(".")[0] in self.read_shares

    def experts(self, weight_bytes: int, config: Mapping[str, Any]) -> tuple[float, float]:
        """Bytes of experts that a step reads, and of all that it does not, in `weight_bytes` packed as `config` says.

        For a network that has shapes alone.
        """
        parameters, found = dict(tree_flatten(self.module.parameters())), [0.0, 0.0]
        for path, share in self.read_shares.items():
            nbytes = parameters[f"{path}.weight"].size * bits_a_weight(config, path) / 8
            found[0] += nbytes * share
            found[1] += nbytes * (1 - share)
        fit = min(1.0, weight_bytes / (sum(found) or 1))  # files may be packed otherwise than is said
        return found[0] * fit, found[1] * fit

    @property
    def widest(self) -> int:
        """The most rows of any matrix but embeddings, output head, and experts, which are never multiplied in tiles."""
        found = [(name, value) for name, value in tree_flatten(self.module.parameters()) if not OUTER.search(name)]
        return max((v.shape[-2] for name, v in found if v.ndim > 1 and not self._of_experts(name)), default=0)

    @property
    def packing(self) -> tuple[str, int] | None:
        """mlx's mode and the bits of most that a step reads, embeddings and output head left out; None: not packed."""
        found: dict[tuple[str, int], float] = {}
        for path, m in self.module.named_modules():
            if "mode" in vars(m) and "bits" in vars(m) and not OUTER.search(path):
                packing = str(m.mode), int(m.bits)
                found[packing] = found.get(packing, 0.0) + self._read.get(f"{path}.weight", 0.0)
        return max(found, key=found.__getitem__, default=None)

    @property
    def queries_a_key(self) -> int:
        """The most query heads that share a key head in any layer, 1 where no layer says."""
        layers = [vars(module) for _, module in self.module.named_modules()]
        heads = [[next(filter(None, map(layer.get, names)), 0) for names in HEADS] for layer in layers]
        return max((queries // keys for queries, keys in heads if keys), default=1) or 1


class CachedModel:
    """One conversation's caches over a network; as a draft, it is of this `kind`."""

    kind = MODEL.name

    def __init__(
        self,
        network: nn.Module | Network,
        name: str = "",
        context_limit: int | None = None,
        kv_bits: int | None = None,
        reread: Callable[[], Mapping[str, Any]] | None = None,
        recent: int | None = None,
    ) -> None:
        """`network` may be a Network, which is shared, or a module, of which the other arguments make a Network."""
        if not isinstance(network, Network):
            network = Network(network, name, context_limit, kv_bits, reread, recent)
        self.network = network
        self.name, self.context_limit, self.dtype = network.name, network.context_limit, network.dtype
        self.recent = network.recent
        self.weight_bytes, self.step_bytes = network.weight_bytes, network.step_bytes
        self._caches = Caches(self.network.module, self.network.kv)
        self._read: list[int] = []
        # The position in the context at which the caches begin.
        self.origin = 0
        self._marks: tuple[int, ...] = ()
        self._released = False
        self.row: SharedRow | None = None
        # Tokens of a prompt that one pass reads at most, where somebody waits for its end; None: as many as are fast.
        self.most_chunk_tokens: int | None = None
        self.vocab_size: int = self._dry_run().shape[-1]
        # Bytes of the largest recurrent state, 0 without one.
        self.state_bytes: int = self._caches.state_bytes
        self._cache_sizes = self._caches.sizes
        # Sizes of a head's key and value in each layer that attends, where they are not quantized.
        self.head_sizes: frozenset[tuple[int, int]] = self._caches.head_sizes
        self._caches.reset()

    def fresh(self) -> CachedModel:
        """The same weights with empty caches of their own: another conversation."""
        return CachedModel(self.network)

    def copy(self, length: int) -> CachedModel:
        """Another conversation that begins with the first `length` tokens read here, or fewer, as of `reuse`."""
        twin = self.fresh()
        twin._caches = self._caches.copy(min(max(length - self.origin, 0), len(self._read)))
        twin._read, twin.origin = self._read[: twin._caches.length], self.origin
        return twin

    def contents(self) -> dict[str, Any]:
        """What another process needs to `restore` this conversation."""
        return {"read": list(self._read), "origin": self.origin, "caches": self._caches.contents()}

    def restore(self, contents: Mapping[str, Any]) -> None:
        """Hold `contents` of a conversation over the same weights, and nothing else."""
        self.forget()
        self._caches.restore(contents["caches"])
        self._read, self.origin, self._released = list(contents["read"]), contents["origin"], False

    @property
    def ends(self) -> list[int] | None:
        """Lengths that can be returned to in `contents`; None: all of them."""
        return self._caches.ends

    def own_ends(self, context: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
        """Where the first `ends` tokens of the target's `context` end in ids of its own."""
        return ends

    def mark(self, ends: Sequence[int], kept: int) -> None:
        """From now on prompts are read such that a rollback can come back to any length in `ends`.

        Costs nothing where trimming can. Elsewhere a snapshot each, and of those at most `kept` stay.
        """
        self._marks = tuple(ends) if self._caches.needs_snapshots else ()
        self._caches.kept_snapshots = kept

    @property
    def length(self) -> int:
        """The position at which the caches end, what is queued on the device included; of a row, what is committed."""
        return self.origin + (self._caches.length if self.row is None else len(self._read))

    @property
    def read(self) -> Sequence[int]:
        """The ids in the caches, but for what is queued and not committed."""
        return self._read

    @property
    def nbytes(self) -> int:
        """Bytes of the caches and their snapshots as they are."""
        return self._caches.nbytes

    def reach(self, context: Sequence[int]) -> int:
        """Tokens of `context` that need not be read again: what `reuse` would return."""
        return self._reuse(context)[1]

    def unread(self, context: Sequence[int]) -> int:
        """Tokens of `context` that are still to be read before its last row can be scored."""
        return len(context) - self.reach(context)

    def has_room(self, context: Sequence[int]) -> bool:
        """Whether `context` can be read on from here; else the caches have to begin nearer to its end."""
        return self._holds(context, self.length)

    def _holds(self, context: Sequence[int], kept: int) -> bool:
        recent = self.recent
        return recent is None or (len(context) - self.origin <= 2 * recent and len(context) - kept <= recent)

    def _reuse(self, context: Sequence[int]) -> tuple[int, int]:
        """(where the caches should begin for `context`, tokens of it that need not be read again)."""
        here = context[self.origin :] if self.origin else context
        kept = self.origin + self._caches.reach(max(min(common_prefix(self._read, here), len(here) - 1), 0))
        if kept < len(context) and self._holds(context, kept):
            return self.origin, kept
        begin = max(len(context) - (self.recent or len(context)), 0)
        return begin, begin

    @property
    def cache_kinds(self) -> tuple[str, ...]:
        return self._caches.kinds

    @property
    def layers(self) -> int:
        return len(self.network.module.layers)

    def cache_bytes(self, tokens: int, value_bytes: int, snapshots: int = KEPT_SNAPSHOTS) -> int:
        """Bytes of all caches once `tokens` have been read, with `value_bytes` a value and so many `snapshots`."""
        if self.recent is not None:
            tokens = min(tokens, 2 * self.recent + MAX_ROWS)
        chunk = device.prefill_tokens()
        return sum(one.nbytes(tokens, chunk, value_bytes, snapshots) for one in self._cache_sizes)

    def _dry_run(self) -> mx.array:
        """Logits [1, V] of one token that are never computed: their graph is built for its shapes alone."""
        self.forget()
        return self.extend(mx.zeros((1,), mx.int32))

    def forget(self) -> None:
        """Empty the caches, those that a failure left in a row of others as well."""
        self.row = None
        self._read.clear()
        self._caches.reset()
        self.origin = 0

    def release(self) -> None:
        """Give memory back: what was read is forgotten, and weights that can be read again wait for their next use."""
        if self._released:
            return
        self.forget()
        self.network.release()
        self._released = True

    def reuse(self, context: Sequence[int]) -> int:
        """Roll back to the longest prefix of `context` that was read and can be returned to. Returns its length."""
        self.origin, kept = self._reuse(context)
        self.commit(context, kept)
        return self.length

    def prefill(self, context: Sequence[int]) -> Iterator[Output]:
        """Read all but the last token of `context`, some hundreds at a time; yields each chunk's output.

        Closing the iterator between chunks leaves a consistent memo.
        """
        if not self.has_room(context):
            self.reuse(context)
        begin = self.length
        while self.length < len(context) - 1:
            chunk = context[self.length : self._chunk_end(len(context) - 1)]
            output = self.forward(self.ids(chunk))
            self._caches.evaluate()
            device.give_back(self.length - len(chunk), self.length, READ_TOKENS)
            self.commit(context, self.length)
            if self.length in self._marks:
                self._caches.snapshot()
            yield output
        device.give_back(begin, self.length, every=1)
        self._caches.snapshot()

    def _chunk_end(self, end: int) -> int:
        """Where the next chunk of a prompt ends that is read up to `end`: at a mark, if there is one on the way."""
        most = device.prefill_tokens()
        end = min(self.length + min(most, self.most_chunk_tokens or most), end)
        return min((mark for mark in self._marks if self.length < mark < end), default=end)

    def logits(self, context: Sequence[int], pending: mx.array) -> mx.array:
        """Logits [K + 1, V] after `context` and after each of the `pending` tokens [K], queued, not evaluated."""
        return self.outputs(context, pending).logits

    def outputs(self, context: Sequence[int], pending: mx.array = NO_TOKENS) -> Output:
        """The rows after `context` and after each of the `pending` tokens [K]: K + 1 of them, lazy.

        Feeds the part of `context` that is not yet in the caches (at least its last token), so the cost on the host
        does not grow with the context. The caller commits what became true.
        """
        unfed = self.unfed(context)
        output = self.forward(mx.concatenate([unfed, pending]) if pending.size else unfed)
        return output.last(pending.size + 1)

    def unfed(self, context: Sequence[int]) -> mx.array:
        """The last tokens [T] of `context`, at least one, as they are to be fed: all else is held."""
        self.commit(context, min(self.length, len(context) - 1))
        if self.row is None and (len(context) - self.length > MAX_UNREAD or not self.has_room(context)):
            # A rollback went far back: a pass of its own is a place that later rollbacks can return to.
            deque(self.prefill(context), maxlen=0)
        return self.ids(context[self.length :])

    def ids(self, tokens: Sequence[int]) -> mx.array:
        """`tokens` [T] as they can be fed: an id without an embedding, which mlx reads out of bounds, as the last one.

        A draft may know fewer ids than its target.
        """
        return mx.array([min(token, self.vocab_size - 1) for token in tokens], dtype=mx.int32)

    def forward(self, tokens: mx.array) -> Output:
        """Feed `tokens` [T] after whatever the caches hold; lazy."""
        self._released = False
        return self.network.forward(tokens, self._caches)

    def extend(self, tokens: mx.array) -> mx.array:
        """Feed `tokens` [T] after whatever the caches hold: logits [T, V], lazy."""
        return self.forward(tokens).logits

    def commit(self, context: Sequence[int], length: int) -> None:
        """From now on the caches hold exactly `context[:length]`; later positions are rolled back.

        The caches may end up shorter than `length` (it was not all fed, or a cache can only return to an earlier
        point); the next `logits` feeds the gap.
        """
        length -= self.origin
        if self.row is None:
            length = self._caches.rollback(max(min(length, self._caches.length), 0))
            del self._read[length:]
        self._read += context[self.origin + len(self._read) : self.origin + length]

    def cut(self, context: Sequence[int], length: int) -> None:
        """`commit`, where fewer tokens may have been fed; of a row what is beyond is taken back."""
        if self.row is not None:
            held = self.origin + self.row.length
            length = min(length, held)
            self.row.take_back(held - length)
        self.commit(context, length)

    @property
    def trims(self) -> bool:
        """Whether all caches can be trimmed back to any length, so that a prompt may be read in any pieces."""
        return not self._caches.needs_snapshots

    def shown(self, length: int, queries: int = 1) -> Shown:
        """The keys and values of the positions before `length`, for as many `queries` that stand up to it; lazy."""
        return shown(self._caches.layers, self.network.owners, length - self.origin, queries)

    def catch_up(self, context: Sequence[int]) -> None:
        """Hold all but the last token of `context`."""
        self.commit(context, len(context) - 1)
        if self.length < len(context) - 1:
            deque(self.prefill(context), maxlen=0)

    def invent(self, context: Sequence[int], length: int) -> None:
        """As if the first `length` tokens of `context` had been read on from here, at no pass: for a proof."""
        self._caches.invent(length - self.length)
        self.commit(context, length)

    def join(self, row: SharedRow) -> None:
        """From now on what comes next is read in passes that others share, until `leave`."""
        row.join(self._caches)
        self.row = row

    def take_back(self, count: int) -> None:
        """In passes that are shared: the last `count` tokens of its part of the last one were rejected."""
        if self.row is not None and count:
            self.row.take_back(count)

    def leave(self, context: Sequence[int], length: int) -> None:
        """From now on `context` is continued alone: the caches hold its first `length` tokens again."""
        if self.row is not None:
            row, self.row = self.row, None
            row.leave(self._caches, length - self.origin)
            self.commit(context, length)
