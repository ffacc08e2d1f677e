"""A device that fails at one of its calls, as Metal does: what the caches hold then was never computed."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.cache.rollback import leaves

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
        monkeypatch.setattr(mx, "eval", self._failing("eval", mx.eval))
        monkeypatch.setattr(mx, "async_eval", self._failing("async_eval", mx.async_eval))
        monkeypatch.setattr(device, "to_list", self._failing("to_list", device.to_list))
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
