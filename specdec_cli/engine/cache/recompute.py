"""Recurrent state after some of a pass's tokens. Law: it depends on these tokens alone; no weight is read twice.

In float32 the state is that of a pass over just these tokens; kernels for fewer rows can round differently.

While several tokens are verified, a recording keeps what went into each recurrent module and what its projections and
convolutions returned (a few rows each). To take tokens back, the state from before the pass is restored and the modules
run again on the first rows, with projections and convolutions answered from the recording. Only the recurrence and the
activations before it are recomputed: mlx is lazy, so later layers are never evaluated. Architecture-agnostic: a dry run
records which modules touch a recurrent state.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import ArraysCache, CacheList

from specdec_cli.engine.cache.cache_kinds import detached, leaves
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
            if isinstance(module, ANSWERED):
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
