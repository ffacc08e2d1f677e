"""Rollback of all caches of one network. Law: after a rollback the caches hold what the pass computed for the kept
tokens and nothing of the others; one that cannot get there says so instead of answering wrong.

A recurrent state cannot be trimmed. So while several tokens are verified, a recording keeps what went into each
recurrent module and what its projections and convolutions returned (a few rows each). To take tokens back, the state
from before the pass is restored and the modules run again on the first rows, with projections and convolutions answered
from the recording: no weight is read twice. Only the recurrence and the activations before it are recomputed: mlx is
lazy, so later layers are never evaluated. In float32 the state is that of a pass over just these tokens; kernels for
fewer rows can round differently. Which modules touch a recurrent state a dry run tells, whatever the architecture.

Only this module, `cache_kinds` and `window` know that there are different caches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, make_prompt_cache

from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.request import MAX_ROWS
from specdec_cli.engine.cache.cache_kinds import (
    BOUNDED,
    KEPT_SNAPSHOTS,
    TRIMMED,
    CacheSize,
    KVQuantization,
    cut_out,
    detached,
    head_sizes,
    leaves,
    own,
    put_back,
    reaches,
    rolling,
    state_of,
    without_room,
)
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.hidden import hook

ANSWERED = (nn.Linear, nn.QuantizedLinear, nn.Conv1d)


@dataclass(slots=True)
class ModuleCall:
    """One recurrent module's part of a pass: its arguments, and what each projection and convolution in it returned.

    Outputs are in the order of the calls. None is a convolution whose rows are not those of the tokens: it runs again.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[mx.array | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recording:
    """A pass over `tokens` tokens."""

    tokens: int
    calls: list[ModuleCall] = field(default_factory=list)


class Recorder:
    """Records passes of one network, and recomputes parts of them."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._call: ModuleCall | None = None
        self._answers: Iterator[mx.array | None] | None = None

    @contextmanager
    def recording(self, tokens: int) -> Iterator[Recording]:
        """Every pass of the network inside is recorded."""
        self._recording = Recording(tokens)
        try:
            yield self._recording
        finally:
            self._recording = self._call = None

    def recompute(self, recording: Recording, tokens: int) -> None:
        """Advance the recurrent states, which are those from before the pass, by its first `tokens` tokens. Lazy."""
        for call in recording.calls:
            self._answers = (_first_rows(output, tokens) for output in call.outputs)
            try:
                kwargs = {name: _shortened(value, recording.tokens, tokens) for name, value in call.kwargs.items()}
                with _uncompiled(call.module):
                    call.module(*(_shortened(value, recording.tokens, tokens) for value in call.args), **kwargs)
            finally:
                self._answers = None

    def run(self, module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handles a recurrent module's call: the outermost one becomes a ModuleCall."""
        if self._recording is None or self._call is not None:
            return original(module, *args, **kwargs)
        self._call = ModuleCall(module, args, kwargs)
        self._recording.calls.append(self._call)
        try:
            return original(module, *args, **kwargs)
        finally:
            self._call = None

    def project(self, module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handles the call of a projection or convolution inside a recurrent module."""
        if self._answers is not None and (answer := next(self._answers)) is not None:
            return answer
        output = original(module, *args, **kwargs)
        if self._recording is not None and self._call is not None:
            padded = isinstance(module, nn.Conv1d) and output.shape[1] != self._recording.tokens
            self._call.outputs.append(None if padded else output)
        return output


def recorder_of(network: nn.Module) -> Recorder | None:
    """The recorder that was installed in `network`; several caches of one network share it."""
    recorder: Recorder | None = getattr(network, "_specdec_recorder", None)
    return recorder


def install_recorder(network: nn.Module, readers: Sequence[nn.Module]) -> Recorder:
    """A recorder to which `readers` and their projections report from now on."""
    recorder = Recorder()
    object.__setattr__(network, "_specdec_recorder", recorder)
    for reader in readers:
        for module in reader.modules():
            if isinstance(module, ANSWERED) or "scales" in module:  # Hadamard's are a type of their own
                hook(module, recorder.project)
        hook(reader, recorder.run)
    return recorder


def readers_of(network: nn.Module, layers: Sequence[Any]) -> list[nn.Module]:
    """The modules in whose own code a recurrent state of `layers` is read or written, found in a lazy pass.

    `layers` are caches made for this and thrown away. Empty if the network itself reads one, so that nothing smaller
    could run again, or if nobody read one of them.
    """
    readers: dict[int, nn.Module] = {}
    unread = {id(part): part for part in leaves(layers) if type(part) is ArraysCache}

    class Watched(ArraysCache):  # type: ignore[misc]  # mlx_lm has no types
        def __getitem__(self, index: int) -> Any:
            _note(readers)
            unread.pop(id(self), None)
            return super().__getitem__(index)

        def __setitem__(self, index: int, value: Any) -> None:
            _note(readers)
            super().__setitem__(index, value)

    for part in unread.values():
        part.__class__ = Watched
    network(mx.zeros((1, 2), mx.int32), cache=layers)
    found = list(readers.values())
    return [] if unread or any(reader is network for reader in found) else found


def _note(readers: dict[int, nn.Module]) -> None:
    """Enter the module whose `__call__` is the innermost on the stack."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if frame.f_code.co_name == "__call__" and isinstance(owner, nn.Module):
            readers[id(owner)] = owner
            return
        frame = frame.f_back


@contextmanager
def _uncompiled(module: nn.Module) -> Iterator[None]:
    """A layer that compiles its pass over one token runs it as it is: the compiled one takes no recorded answers.

    It would read the weights again; and were it first traced here, it would keep these answers for all later tokens.
    On Metal kimi_k3 has such a layer (mlx-lm, models/kimi_k3.py).
    """
    step, core = getattr(module, "_step", None), getattr(module, "_decode_core", None)
    if core is None:
        yield
        return
    module._step = core
    try:
        yield
    finally:
        module._step = step


def _first_rows(output: mx.array | None, tokens: int) -> mx.array | None:
    # Scans that project one token at a time have no token axis: their answers come in the order of the tokens.
    return output[:, :tokens] if output is not None and output.ndim > 2 else output


def _shortened(value: Any, fed: int, tokens: int) -> Any:
    """An argument of the first `tokens` of `fed` tokens: rows of activations, corners of masks, caches as they were."""
    if isinstance(value, mx.array) and value.ndim >= 2:
        if value.dtype == mx.bool_ and value.shape[-2] == fed:
            return value[..., :tokens, : value.shape[-1] - fed + tokens]
        return value[:, :tokens] if value.shape[1] == fed else value
    if isinstance(value, CacheList):
        return CacheList(*(_before(part, tokens) for part in value.caches))
    return value


def _before(part: Any, tokens: int) -> Any:
    """KV caches that share a CacheList with a recurrent state were already rolled back.

    The recomputation runs on a temporary copy, trimmed to the start of the pass.
    """
    if isinstance(part, ArraysCache):
        return part
    twin = detached(part)
    twin.trim(tokens)
    return twin


@dataclass(frozen=True, slots=True)
class Fed:
    """A pass that can be taken back: positions `start` to `end`, the states from before it, its recording if any."""

    start: int
    end: int
    states: tuple[dict[str, Any], ...]
    recording: Recording | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """States at `length` of all parts that cannot be trimmed back to it however much is fed later."""

    length: int
    states: tuple[dict[str, Any], ...]


def thin_out(snapshots: list[Snapshot], kept: int) -> list[Snapshot]:
    """At most `kept` snapshots: the two newest, and of the older ones those that leave the smallest gaps."""
    lengths = [0, *(snapshot.length for snapshot in snapshots)]
    if len(snapshots) <= kept:
        return snapshots
    old = range(len(snapshots) - 2) or range(1)
    dropped = min(old, key=lambda at: lengths[at + 2] - lengths[at])
    return thin_out(snapshots[:dropped] + snapshots[dropped + 1 :], kept)


BLOCK = 512


class Caches:
    """All layer caches of one network, moved together. Lengths and positions are in tokens."""

    def __init__(self, network: nn.Module, kv: KVQuantization | None = None) -> None:
        self._network = network
        self._kv = kv
        self.kept_snapshots = KEPT_SNAPSHOTS
        self.reset()
        recurrent = bool(self._rewound) and all(type(part) is ArraysCache for part in self._rewound)
        self._recorder = recorder_of(network)
        # Who reads a state does not depend on how keys and values are kept, and quantized ones may not fit the heads.
        if recurrent and self._recorder is None and (readers := readers_of(network, self._made(None))):
            self._recorder = install_recorder(network, readers)

    def reset(self) -> None:
        """Forget everything."""
        self.layers: list[Any] = self._made(self._kv)
        self.length = 0
        parts = leaves(self.layers)
        self._trimmed = [part for part in parts if type(part) in TRIMMED]
        self._bounded = [part for part in parts if type(part) in BOUNDED]
        self._rewound = [part for part in parts if type(part) not in TRIMMED + BOUNDED]
        self._fed: list[Fed] = []
        self._snapshots: list[Snapshot] = []

    def _made(self, kv: KVQuantization | None) -> list[Any]:
        return [rolling(layer, kv) for layer in make_prompt_cache(self._network)]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the cache classes in use, each once."""
        return tuple(sorted({type(part).__name__ for part in leaves(self.layers)}))

    @property
    def sizes(self) -> tuple[CacheSize, ...]:
        """What each of them takes; something must have been read, for its shapes."""
        return tuple(CacheSize.of(part) for part in leaves(self.layers))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held, each counted once: contents, snapshots, and what takes the last pass back."""
        held: list[Any] = [vars(part) for part in leaves(self.layers)]
        held += [snapshot.states for snapshot in self._snapshots]
        for fed in self._fed:
            calls = fed.recording.calls if fed.recording else []
            held += [fed.states, *((call.args, call.kwargs, call.outputs) for call in calls)]
        arrays = (value for _, value in tree_flatten(held) if isinstance(value, mx.array))
        return sum({id(array): array.nbytes for array in arrays}.values())

    @property
    def needs_snapshots(self) -> bool:
        """Whether there is something that cannot be trimmed back however much is fed later."""
        return bool(self._bounded or self._rewound)

    @property
    def state_bytes(self) -> int:
        """Bytes of the largest recurrent state; something must have been read."""
        return max((part.nbytes for part in self._rewound), default=0)

    @property
    def head_sizes(self) -> frozenset[tuple[int, int]]:
        """(key, value) sizes of a head in each cache of numbers as they are; something must have been read."""
        return frozenset(size for part in leaves(self.layers) if (size := head_sizes(part)))

    @contextmanager
    def feeding(self, tokens: int) -> Iterator[None]:
        """Around one call of the network on `tokens` tokens. If it raises, layers grew unevenly: all is forgotten."""
        states = tuple(state_of(part) for part in self._rewound)
        recorded = self._recorder is not None and 1 < tokens <= MAX_ROWS
        try:
            with self._recorder.recording(tokens) if self._recorder and recorded else nullcontext() as recording:
                yield
        except BaseException:
            self.reset()
            raise
        if self._rewound:
            self._fed.append(Fed(self.length, self.length + tokens, states, recording))
        self.length += tokens

    def was_fed(self, length: int) -> None:
        """The layers were fed up to `length` in passes of others, none of which can be taken back."""
        self.length, self._fed = length, []

    def invent(self, tokens: int) -> None:
        """Hold so many tokens more, whose keys and values resemble those that were read; states stay as they are."""
        for at, part in enumerate(leaves(self.layers)):
            if type(part) in (KVCache, WindowKVCache) and not part.empty():
                part.update_and_fetch(*(_resembling(rows, part.offset, tokens, at) for rows in part.keys_and_values()))
        self.was_fed(self.length + tokens)

    def snapshot(self) -> None:
        """Remember the present, so that a later rollback can come back here; nothing where trimming always can."""
        if self.needs_snapshots and all(snapshot.length != self.length for snapshot in self._snapshots):
            taken = Snapshot(self.length, tuple(cut_out(part) for part in self._bounded + self._rewound))
            self._snapshots = thin_out([*self._snapshots, taken], self.kept_snapshots)

    def copy(self, length: int) -> Caches:
        """Caches of their own with the first `length` tokens, or fewer, as of `rollback`.

        Arrays are copied when either side writes. The last pass cannot be taken back in part.
        """
        twin, copies = Caches(self._network, self._kv), dict[int, mx.array]()
        for mine, theirs in zip(leaves(twin.layers), leaves(self.layers), strict=True):
            vars(mine).update(own(vars(theirs), copies))
        twin.length, twin.kept_snapshots = self.length, self.kept_snapshots
        twin._snapshots = [
            replace(kept, states=tuple(own(state, copies) for state in kept.states)) for kept in self._snapshots
        ]
        twin.rollback(length)
        for part in twin._trimmed:  # the next pass makes room for tokens to come
            vars(part).update(without_room(part))
        return twin

    def contents(self) -> dict[str, Any]:
        """What another process needs to `restore` them, in arrays of their own size; the last pass stays behind."""
        parts = [without_room(part) for part in leaves(self.layers)]
        snapshots = [[kept.length, list(kept.states)] for kept in self._snapshots]
        return {"length": self.length, "parts": parts, "snapshots": snapshots}

    def restore(self, contents: Mapping[str, Any]) -> None:
        """Hold `contents` of caches of the same network, and nothing else."""
        self.reset()
        for part, attributes in zip(leaves(self.layers), contents["parts"], strict=True):
            vars(part).update(attributes)
        self.length = contents["length"]
        self._snapshots = [Snapshot(length, tuple(states)) for length, states in contents["snapshots"]]

    @property
    def ends(self) -> list[int] | None:
        """The lengths that a rollback of `contents` can surely reach; None: all of them."""
        return [*(kept.length for kept in self._snapshots), self.length] if self.needs_snapshots else None

    def rollback(self, length: int) -> int:
        """Take back what lies after `length`; returns the length reached, which is less only if it must be.

        Raises: SpecdecError if a layer took back a different number of tokens (mlx-lm's own helper returns 0 silently).
        """
        if length < self.length:
            self._go_back(length)
        self._fed = [fed for fed in self._fed if self.length <= fed.end]
        return self.length

    def reach(self, length: int) -> int:
        """What `rollback` to `length` would return."""
        if length >= self.length:
            return self.length
        _, kept = self._within(length)
        if kept is not None:
            return kept
        return max((snapshot.length for snapshot in self._snapshots if snapshot.length <= length), default=0)

    def _within(self, length: int) -> tuple[Fed | None, int | None]:
        """The pass to take back and the length then reached; None where only a snapshot can help."""
        fed = next((fed for fed in reversed(self._fed) if fed.start <= length), None)
        kept = fed.start if fed and not fed.recording else length
        if (self._rewound and not fed) or not all_reach(self._bounded, kept):
            return None, None
        return fed, kept

    def _go_back(self, length: int) -> None:
        fed, kept = self._within(length)
        if kept is None:
            self._restore(length)
            return
        self._trim(kept, self._trimmed + self._bounded)
        if fed:
            self._fed = self._fed[: self._fed.index(fed)]
            put_back(self._rewound, fed.states)
            if self._recorder and fed.recording and kept > fed.start:
                self._recorder.recompute(fed.recording, kept - fed.start)
                self._fed.append(Fed(fed.start, kept, fed.states, fed.recording))
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot.length <= kept]

    def _restore(self, length: int) -> None:
        """Back to the newest snapshot at or before `length`, else to nothing."""
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot.length <= length]
        if not self._snapshots:
            self.reset()
            return
        snapshot = self._snapshots[-1]
        self._trim(snapshot.length, self._trimmed)
        put_back(self._bounded + self._rewound, snapshot.states)
        self._fed = []

    def _trim(self, length: int, parts: Sequence[Any]) -> None:
        """Let all `parts` that hold something end at `length`."""
        tokens = self.length - length
        for part in parts:
            # Some architectures make caches that their layers never use.
            trimmed = tokens if part.empty() else part.trim(tokens)
            if trimmed != tokens:
                self.reset()
                raise SpecdecError(
                    f"a {type(part).__name__} took back {trimmed} of {tokens} tokens",
                    "please report this with the model's name; `--drafter none` decodes without rollback",
                )
        self.length = length

    def evaluate(self) -> None:
        """Wait until the contents are computed (mlx is lazy)."""
        mx.eval([layer.state for layer in self.layers])


def _resembling(rows: mx.array, held: int, tokens: int, seed: int) -> mx.array:
    """[1, H, tokens, D], drawn: some of the `held` of `rows` [1, H, C, D], each number times about one."""
    chosen, factor = mx.random.split(mx.random.key(seed))
    some = rows[:, :, mx.random.randint(0, held, [tokens], key=chosen), :]
    return (some * mx.random.normal(some.shape, loc=1.0, scale=0.5, key=factor)).astype(rows.dtype)


def all_reach(parts: Sequence[Any], position: int) -> bool:
    """Whether all of these bounded caches still hold what attention at `position` reads."""
    return all(reaches(part, position) for part in parts)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading ids that `a` and `b` share; whole blocks first, as most of a long prompt is what it was."""
    at, end = 0, min(len(a), len(b))
    while at < end and list(a[at : at + BLOCK]) == list(b[at : at + BLOCK]):
        at += BLOCK
    at = min(at, end)
    pairs = zip(a[at : at + BLOCK], b[at : at + BLOCK], strict=False)
    return next((at + i for i, (x, y) in enumerate(pairs) if x != y), min(at + BLOCK, end))
