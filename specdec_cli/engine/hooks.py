"""Watch the calls of a network's modules. Only the class of a watched module changes.

Python looks `__call__` up in the class, so a watched module gets a subclass of its own class. mlx sees the same
parameters and the same tree of modules. Watching a module twice nests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import mlx.nn as nn

Handler = Callable[[nn.Module, Any, tuple[Any, ...], dict[str, Any]], Any]
"""(module, its original method, arguments, keyword arguments) -> what the call returns."""


def hook(module: nn.Module, handler: Handler, method: str = "__call__") -> None:
    """Calls of `module`, or of its `method`, go through `handler` from now on."""
    slot = f"_specdec_handler_{_depth(module)}"
    object.__setattr__(module, slot, handler)
    object.__setattr__(module, "__class__", _intercepting(module.__class__, slot, method))


@contextmanager
def hooked(module: nn.Module, handler: Handler, method: str = "__call__") -> Iterator[None]:
    """As `hook`, inside the context only. Nothing else may begin to watch `module` meanwhile."""
    before, slot = module.__class__, f"_specdec_handler_{_depth(module)}"
    hook(module, handler, method)
    try:
        yield
    finally:
        object.__setattr__(module, "__class__", before)
        object.__delattr__(module, slot)


def unhooked(module: nn.Module, method: str = "__call__") -> Any:
    """The module's own `method`, bound to it: calls of it pass no handler."""
    own = next(kind for kind in type(module).__mro__ if "_specdec_intercepts" not in vars(kind))
    return getattr(own, method).__get__(module)


def _depth(module: nn.Module) -> int:
    return sum("_specdec_intercepts" in vars(kind) for kind in type(module).__mro__)


@cache
def _intercepting(kind: Any, slot: str, method: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, slot)(self, getattr(kind, method), args, kwargs)

    return type(kind.__name__, (kind,), {method: call, "_specdec_intercepts": True})
