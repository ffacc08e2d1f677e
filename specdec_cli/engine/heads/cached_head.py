"""One conversation's head, and what it has read. Law: it holds the target's own states and never reads past them.

Entry p of its cache comes from the state that the target had at position p and from the token after it. So after n
tokens of context it may hold n - 1 entries, as many as the target's caches. Entries of drafted tokens come from the
head's own states and are taken back before anything else is read. A bounded head attends to the last `recent` entries
and holds twice as many; it may begin within the context, and counts positions from there. Medusa heads hold no
entries: only the last state matters to them.
Letters: T tokens, D hidden size, V the target's vocabulary size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from specdec_cli.core.errors import Refused, SpecdecError
from specdec_cli.engine.cache.cache_kinds import detached, without_room
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.cache.shown import Shown
from specdec_cli.engine.experts import bytes_read, read_shares
from specdec_cli.engine.heads.load_head import HeadAgreement, HeadNetwork
from specdec_cli.engine.heads.mtp import HeadPass
from specdec_cli.engine.hidden import OutputHead
from specdec_cli.engine.model import Network

# States that wait to be read, at most: those of plain rounds are read together, so that a head that drafts nothing
# costs next to nothing.
MOST_WAITING = 128


class Head:
    """Weights of a head over its target, shared by all conversations. From now on the target keeps what it reads."""

    def __init__(
        self,
        module: HeadNetwork,
        target: Network,
        name: str,
        agreement: HeadAgreement | None = None,
        recent: int | None = None,
    ) -> None:
        """`name` is for messages; `agreement` is how well it guesses, where that was measured.

        `recent`: it reads the last so many tokens of a context; None: all of it.
        Raises: Refused where the target has no such state, or no embedding was found.
        """
        self.module, self.name, self.agreement, self.recent = module, name, agreement, recent
        self.weight_bytes: int = sum(value.nbytes for _, value in tree_flatten(module.parameters()))
        self.output_head = output_head_for(target, name).scored_by(module.output)
        token, state = mx.zeros(1, mx.int32), mx.zeros((1, 1, self.output_head.hidden_size))
        self.read_shares = read_shares(module, lambda: self.read(token, state, module.new_cache(recent)))
        # Bytes that one drafted token reads: the head's, and the target's output head where that scores it.
        own = sum(bytes_read(module, {**self.read_shares, **module.shares}).values())
        self.step_bytes = round(own) + (self.output_head.nbytes if module.output is None else 0)
        target.hidden.expose()

    @property
    def kind(self) -> str:
        """The kind of drafter that it is."""
        return self.module.kind

    def read(self, tokens: mx.array, hidden: mx.array, cache: Any, drafted: int = 0) -> HeadPass:
        """Pairs of tokens [T] and states [1, T, D], after those in `cache`; so many were `drafted` before them."""
        step: HeadPass = self.module(self.output_head.embed(tokens)[None], hidden, cache, drafted)
        return step


def output_head_for(target: Network, name: str) -> OutputHead:
    """What the head `name` needs of `target`: its embedding and its output head. Raises: Refused if it lacks one."""
    output_head = target.hidden.output_head
    if output_head.embedding is None:
        raise Refused(
            f"{target.name}: no module embeds its tokens, and {name} reads them", "use a draft model or --drafter ngram"
        )
    return output_head


class CachedHead:
    """One conversation's cache over a head."""

    context_limit: int | None = None

    def __init__(self, head: Head) -> None:
        self.head, self.recent = head, head.recent
        self.forget()

    def fresh(self) -> CachedHead:
        """The same weights with an empty cache: another conversation."""
        return CachedHead(self.head)

    def copy(self, length: int) -> CachedHead:
        """Another conversation that begins as this one did; its `reuse` cuts what is beyond `length` tokens."""
        twin = self.fresh()
        twin._cache = None if self._cache is None else detached(self._cache)
        twin._context, twin._waiting, twin._origin = list(self._context), list(self._waiting), self._origin
        twin._last, twin._drafted, twin._entries = self._last, self._drafted, self._entries
        return twin

    def own_ends(self, context: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
        """They are the target's."""
        return ends

    def mark(self, ends: Sequence[int], kept: int) -> None:
        """Nothing: its cache can always be trimmed."""

    @property
    def kind(self) -> str:
        """The kind of drafter that it is."""
        return self.head.kind

    @property
    def most(self) -> int:
        """Tokens that it can draft at once."""
        return self.head.module.most

    @property
    def layers(self) -> int:
        """Layers of a step, for what starting them costs."""
        return self.head.module.depth

    @property
    def shown(self) -> bool:
        """Whether it attends to the target's own keys and values."""
        return self.head.module.shown

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that all conversations share."""
        return self.head.weight_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the cache, and of the states that wait to be read."""
        return int(self._cache.nbytes if self._cache is not None else 0) + sum(
            states.nbytes for states in self._waiting
        )

    def forget(self) -> None:
        """Empty the cache."""
        self._cache = self.head.module.new_cache(self.recent)
        self._entries = 0
        # The position at which the cache begins, and the first one whose state is wanted.
        self._origin = self._wanted = 0
        self._context: list[int] = []
        self._waiting: list[mx.array] = []
        self._last: HeadPass | None = None
        self._drafted = 0

    def contents(self) -> dict[str, Any]:
        """What another process needs to `restore` this conversation: entries, and states that wait to be read."""
        self._take_back()
        cache = None if self._cache is None else without_room(self._cache)
        held = {"context": list(self._context), "origin": self._origin, "entries": self._entries}
        return {"cache": cache, "waiting": list(self._waiting), **held}

    def restore(self, contents: Mapping[str, Any]) -> None:
        """Hold `contents` of a conversation over the same head and target, and nothing else."""
        self.forget()
        if self._cache is not None:
            vars(self._cache).update(contents["cache"])
        self._context, self._waiting = list(contents["context"]), list(contents["waiting"])
        self._origin, self._entries = contents["origin"], contents["entries"]

    @property
    def length(self) -> int:
        """Positions whose states were handed over, read or not."""
        return max(len(self._context) - 1, 0)

    @property
    def cached(self) -> int:
        """The position at which the cache ends, entries of drafted tokens included."""
        return self._origin + self._entries

    @property
    def cache_kinds(self) -> tuple[str, ...]:
        return () if self._cache is None else (type(self._cache).__name__,)

    @property
    def step_bytes(self) -> int:
        return self.head.step_bytes

    def follows(self, context: Sequence[int]) -> bool:
        """Whether a draft for `context` can begin: every state up to its last token but one was handed over.

        In O(1): that the tokens are the same is what `reuse` and `hand_over` see to.
        """
        return self.length == len(context) - 1 and (self._last is not None or bool(self._waiting))

    def reuse(self, context: Sequence[int]) -> int:
        """Take back what does not belong to `context`. Returns the positions whose states are not needed again.

        One less than the tokens in common: the state before the first other token must be read with that token. A
        bounded head wants the states of the last positions alone.
        """
        self._cut(max(min(common_prefix(self._context, context), len(context)) - 1, 0))
        self._wanted = 0 if self.recent is None else max(len(context) - self.recent, 0)
        return max(self.length, self._wanted)

    def hand_over(self, context: Sequence[int], hidden: mx.array) -> None:
        """States [T, D] of the positions before the last T tokens of `context`, which begins as it did before.

        They replace what is held of these positions. If an earlier position was never handed over, they are not kept;
        a bounded head begins with them instead.
        """
        start = len(context) - 1 - hidden.shape[0]
        if (start > self.length and self.recent is None) or len(context) <= self._wanted:
            return
        if start > self.length:
            wanted = self._wanted
            self.forget()
            self._context, self._origin, self._wanted = list(context[: start + 1]), start, wanted
        self._cut(start)
        self._context += context[len(self._context) :]
        self._waiting.append(hidden)
        rows = sum(states.shape[0] for states in self._waiting)
        # The newest state waits, for a draft may begin behind it.
        if self._cache is None:
            # No other is read. Those of a prompt are lazy: what only they need of the target is never computed, such as
            # layers that share the caches of earlier ones.
            self._entries += rows - 1
            self._waiting = [hidden[-1:]]
        elif rows > MOST_WAITING:  # of the others only keys and values are computed
            states = mx.concatenate(self._waiting)
            self._read(states[:-1], self._cache)
            mx.async_eval(self._cache.state)
            self._waiting = [states[-1:]]

    def first(self, shown: Shown | None = None) -> HeadPass:
        """The output [1, 1, D] after all that was handed over; lazy. Only where `follows` says so.

        `shown` is what it sees of the target, where it attends to that.
        """
        self._take_back()
        if self._waiting:
            self._last = self._read(mx.concatenate(self._waiting), shown or self._cache).last()
            self._waiting = []
        assert self._last is not None
        return self._last

    def next(self, token: mx.array, carried: mx.array, shown: Shown | None = None) -> HeadPass:
        """The output [1, 1, D] after one more drafted token [1], with the state that the last step carried; lazy."""
        self._drafted += 1
        self._entries += 1
        return self.head.read(token, carried, shown or self._cache, self._drafted)

    def known_logits(self, first: HeadPass, k: int) -> mx.array:
        """Scores of those of `k` tokens, drafted from `first`, that are known before any is drawn: one product."""
        return self.logits(self.head.module.known(first, k))

    def logits(self, scored: mx.array) -> mx.array:
        """The target's own scores [T, V] of the head's output [1, T, D]."""
        return self.head.output_head.logits(scored[0])

    def _read(self, states: mx.array, cache: Any) -> HeadPass:
        """The next states [T, D], each with the token after it, after those in `cache`."""
        self._last = None
        begin = self.cached + 1
        tokens = mx.array(self._context[begin : begin + states.shape[0]], dtype=mx.int32)
        self._entries += states.shape[0]
        return self.head.read(tokens, states[None], cache)

    def _take_back(self) -> None:
        """Entries of drafted tokens leave the cache."""
        self._trim(self._drafted)
        self._drafted = 0

    def _cut(self, length: int) -> None:
        """Hold the states of the first `length` positions at most."""
        self._take_back()
        if length < self.length:
            self._last = None
            kept = max(length - self.cached, 0)
            self._waiting = [mx.concatenate(self._waiting)[:kept]] if kept else []
            self._trim(max(self.cached - length, 0))
            del self._context[length + 1 :]

    def _trim(self, entries: int) -> None:
        self._entries -= entries
        if entries and self._cache is not None and self._cache.trim(entries) != entries:
            self.forget()
            if self.recent is None:
                raise SpecdecError(
                    f"the cache of {self.head.name} did not take back {entries} entries", "please report this"
                )
