"""A device with a clock of its own whose queue blocks the host as mlx's does, and models that say what it works on.

mlx stops the caller of `async_eval` while more than ten tasks are in flight; on Metal a task is a full command buffer,
and a pass fills several (mlx/transforms.cpp, MAX_ACTIVE_TASKS). Only time is faked: arrays are mlx's own.
"""

from __future__ import annotations

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.model import Output

ACTIVE_BUFFERS = 10


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
        """In the place of the device that the engine asks."""
        for name in ("queue", "wait", "to_list", "settle"):
            monkeypatch.setattr(device, name, getattr(self, name))
        monkeypatch.setattr(device, "queues_ahead", lambda: ahead)
        return self

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

    def queue(self, array: mx.array) -> None:
        for seconds, buffers in self._built:
            for _ in range(buffers):
                self._free_at = max(self._free_at, self.now) + seconds / buffers
                self._flying.append(self._free_at)
                self._block()
        self._built.clear()
        self._alive.append(array)
        self._done_at[id(array)] = self._free_at

    def _block(self) -> None:
        self._flying = [done for done in self._flying if done > self.now]
        if len(self._flying) > ACTIVE_BUFFERS:
            self.now = sorted(self._flying)[len(self._flying) - ACTIVE_BUFFERS - 1]

    def wait(self, array: mx.array) -> None:
        if id(array) not in self._done_at:
            self.queue(array)
        self.waits += 1
        self.now = max(self.now, self._done_at[id(array)]) + self.wakeup_seconds

    def settle(self) -> None:
        self.now = max(self.now, self._free_at)

    def to_list(self, array: mx.array) -> list[int]:
        self.wait(array)
        return array.tolist()


class TextModel:
    """In the place of a CachedModel: knows its text by heart, except where `wrong(position)`; n rows take costs(n)."""

    def __init__(self, device: FakeDevice, text, costs, buffers: int, wrong=lambda position: False) -> None:
        self.device, self.text, self.costs, self.buffers, self.wrong = device, text, costs, buffers, wrong
        self.vocab_size = max(text) + 2
        self.length = 0

    def outputs(self, context, pending=NO_TOKENS) -> Output:
        self.length = len(context) - 1
        return self.forward(mx.zeros(1 + pending.size))

    def forward(self, tokens) -> Output:
        self.device.work(self.costs(tokens.size), self.buffers)
        rows = []
        for position in range(self.length + 1, self.length + 1 + tokens.size):
            token = self.text[position % len(self.text)]
            rows.append(mx.arange(self.vocab_size) == (self.vocab_size - 1 if self.wrong(position) else token))
        self.length += tokens.size
        return Output(mx.stack(rows).astype(mx.float32))

    def logits(self, context, pending):
        return self.outputs(context, pending).logits

    def extend(self, tokens):
        return self.forward(tokens).logits

    def commit(self, context, length) -> None:
        self.length = min(self.length, length)

    def reuse(self, context) -> int:
        return self.length

    def prefill(self, context):
        output = self.forward(mx.zeros(max(len(context) - 1, 1)))
        self.device.wait(output.logits)
        yield output

    def release(self) -> None:
        self.length = 0
