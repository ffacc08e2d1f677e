"""A device with a clock of its own whose queue blocks the host as mlx's does, and models that say what it works on.

mlx stops the caller of `async_eval` while more than ten tasks are in flight; on Metal a task is a full command buffer,
and a pass fills several (mlx/transforms.cpp, MAX_ACTIVE_TASKS). Only time is faked: arrays are mlx's own. Then a device
that fails at one of its calls, and one whose memory is numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import StringIO
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from fakes.machine import Machine
from specdec_cli.engine import device
from specdec_cli.engine.cache.rollback import leaves
from specdec_cli.engine.model import CachedModel
from specdec_cli.session.session import Session

ACTIVE_BUFFERS = 10
TARGET_BUFFERS, DRAFT_BUFFERS = 33, 4
Costs = Callable[[int], float]
compute, compute_later = mx.eval, mx.async_eval
item, to_list = mx.array.item, mx.array.tolist


def says(monkeypatch, **facts: object) -> None:
    """The device says these things of itself, each by the function of that name."""
    for name, fact in facts.items():
        monkeypatch.setattr(device, name, lambda fact=fact: fact)


class FakeDevice:
    """`clock()` is the host's; `work` is what the next queued array takes. `wakeup_seconds` is what each wait costs."""

    def __init__(self, wakeup_seconds: float = 0.0) -> None:
        self.now = self._free_at = 0.0
        self.wakeup_seconds = wakeup_seconds
        self.waits = 0
        self._built: list[tuple[float, int]] = []
        self._flying: list[float] = []
        self._done_at: dict[int, float] = {}
        self._alive: list[mx.array] = []

    def install(self, monkeypatch, ahead: bool = True) -> FakeDevice:
        """In the place of mlx's device, for the engine and for mlx-lm."""
        for owner, name, instead in (
            (mx, "async_eval", lambda *arrays: self.queue(*_flat(arrays))),
            (mx, "eval", lambda *arrays: self.wait(*_flat(arrays))),
            (mx, "synchronize", lambda *_: self.settle()),
            (mx.array, "item", lambda array: self.read(array, item)),
            (mx.array, "tolist", lambda array: self.read(array, to_list)),
        ):
            monkeypatch.setattr(owner, name, instead)
        says(monkeypatch, queues_ahead=ahead)
        return self

    def install_as(self, chip: str, monkeypatch) -> FakeDevice:
        """As `install`, and it calls itself `chip`."""
        says(monkeypatch, device_name=chip)
        return self.install(monkeypatch)

    def drive(self, model: CachedModel, costs: Costs, buffers: int) -> None:
        """`model` computes what it always does; each of its passes takes this device costs(rows) seconds."""
        model.network.module = DrivenModule(self, model.network.module, costs, buffers)

    def clock(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        """The host does something else."""
        self.now += seconds

    @property
    def backlog_seconds(self) -> float:
        """Work that is queued and not done."""
        return max(self._free_at - self.now, 0.0)

    def work(self, seconds: float, buffers: int) -> None:
        """A pass was built; it is queued with the next array that is."""
        self._built.append((seconds, buffers))

    def queue(self, *arrays: mx.array) -> None:
        for seconds, buffers in self._built:
            for _ in range(buffers):
                self._free_at = max(self._free_at, self.now) + seconds / buffers
                self._flying.append(self._free_at)
                self._block()
        self._built.clear()
        for array in arrays:
            self._alive.append(array)
            self._done_at.setdefault(id(array), self._free_at)
        compute_later(*arrays)

    def _block(self) -> None:
        self._flying = [done for done in self._flying if done > self.now]
        if len(self._flying) > ACTIVE_BUFFERS:
            self.now = sorted(self._flying)[len(self._flying) - ACTIVE_BUFFERS - 1]

    def wait(self, *arrays: mx.array) -> None:
        arrays = tuple(array for array in arrays if id(array) in self._done_at or not _computed(array))
        if not arrays:
            return
        if any(id(array) not in self._done_at for array in arrays):
            self.queue(*arrays)
        self.waits += 1
        self.now = max([self.now, *(self._done_at[id(array)] for array in arrays)]) + self.wakeup_seconds
        compute(*arrays)

    def read(self, array: mx.array, how: Callable[[mx.array], Any]) -> Any:
        """Its values, which are waited for."""
        self.wait(array)
        return how(array)

    def settle(self) -> None:
        """Nothing is in flight any more."""
        self.now = max(self.now, self._free_at)


class DrivenModule:
    """A network whose calls are also work for a fake device; all else is the network's own."""

    def __init__(self, device: FakeDevice, module: Any, costs: Costs, buffers: int) -> None:
        self._device, self._module, self._costs, self._buffers = device, module, costs, buffers

    def __call__(self, tokens: mx.array, **caches: Any) -> mx.array:
        self._device.work(self._costs(tokens.size), self._buffers)
        return self._module(tokens, **caches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@dataclass(frozen=True)
class DrivenPair:
    """What the passes of a target and its draft take: `rows` in plain steps, a draft's pass the same times `step`.

    From `flat` rows on a pass costs no more. A draft's few rows cost one: its small matrices are bound by their start.
    """

    machine: Machine
    step: float
    chip: str
    flat: int = 16

    def target(self, rows: int) -> float:
        return self.machine.plain_seconds * self.machine.rows(min(rows, self.flat))

    def draft(self, rows: int) -> float:
        return self.step * (self.target(rows) if rows > 2 else self.target(1))

    def drive(self, fake: FakeDevice, session: Session) -> None:
        """The models of `session` take their time on `fake`."""
        fake.drive(session.slot.target, self.target, TARGET_BUFFERS)
        if session.slot.draft is not None:
            fake.drive(session.slot.draft, self.draft, DRAFT_BUFFERS)


def _computed(array: mx.array) -> bool:
    """Whether mlx has its values, as those of a constant: no operation leads to it."""
    graph = StringIO()
    mx.export_to_dot(graph, array)
    return "->" not in graph.getvalue()


def count_read(monkeypatch) -> list[int]:
    """How many arrays each evaluation from now on is given."""
    counts: list[int] = []

    def evaluate(*trees):
        counts.append(len(_flat(trees)))
        compute(*trees)

    monkeypatch.setattr(mx, "eval", evaluate)
    return counts


def _flat(arrays: Iterable[Any]) -> list[mx.array]:
    return [array for _, array in tree_flatten(list(arrays)) if isinstance(array, mx.array)]


# A device that fails, as Metal does: what the caches hold then was never computed.


MEMORY = (
    "[METAL] Command buffer execution failed: Insufficient Memory "
    "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)."
)
SCREEN = (
    "[METAL] Command buffer execution failed: Impacting Interactivity "
    "(0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)."
)


class FailingDevice:
    """Fails at call `at`, counted from 0, and at no other; `calls` says what each call was."""

    def __init__(self, at: int, message: str = MEMORY, *models) -> None:
        self.at, self.message, self.models = at, message, models
        self.calls: list[str] = []

    def install(self, monkeypatch) -> FailingDevice:
        """In the place of mlx's evaluations and read-backs."""
        for owner, name in ((mx, "eval"), (mx, "async_eval"), (device, "to_list")):
            monkeypatch.setattr(owner, name, self._failing(name, getattr(owner, name)))
        return self

    def _failing(self, name: str, original: Callable) -> Callable:
        def call(*arrays):
            self.calls.append(name)
            if len(self.calls) - 1 == self.at:
                self._spoil()
                raise RuntimeError(self.message)
            return original(*arrays)

        return call

    def _spoil(self) -> None:
        for model in self.models:
            for part in leaves(model._caches.layers):
                if part.keys is not None:
                    part.keys, part.values = mx.ones_like(part.keys), -mx.ones_like(part.values)


# A device that calls itself Metal, in numbers only: what is asked of its memory, in order.


GIGABYTE = 1 << 30


class FakeMemory:
    """`asked` are the calls that change what is wired or kept; `wired_limits` the limits among them.

    mlx wires what is in memory when a limit is set, and then what comes while there is room (mlx/backend/metal/
    resident.cpp): so nothing else may be there, and no evaluation under way.
    """

    def __init__(self, recommended: int = 12 * GIGABYTE) -> None:
        self.recommended = recommended
        self.asked: list[str | int] = []

    def install(self, monkeypatch) -> FakeMemory:
        """In the place of mlx's memory."""
        says(monkeypatch, backend="metal", working_set_bytes=self.recommended)
        for name, word in {"clear_cache": "clear", "synchronize": "settle"}.items():
            monkeypatch.setattr(mx, name, lambda *_, word=word: self.asked.append(word))
        monkeypatch.setattr(mx, "set_wired_limit", self.asked.append)
        return self

    @property
    def wired_limits(self) -> list[int]:
        return [limit for limit in self.asked if isinstance(limit, int)]

    @property
    def wired_limit(self) -> int:
        return self.wired_limits[-1] if self.wired_limits else 0
