"""Watch the calls of a network's modules. Law: nothing but the class of a watched module changes, and only its calls.

Python looks `__call__` up in the class, so a watched module gets a subclass of its own class. mlx sees the same
parameters and the same tree of modules. Watching a module twice nests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.nn as nn

Handler = Callable[[nn.Module, Any, tuple[Any, ...], dict[str, Any]], Any]
"""(module, its original __call__, arguments, keyword arguments) -> what the call returns."""


def intercept(module: nn.Module, handler: Handler) -> None:
    """Calls of `module` go through `handler` from now on."""
    depth = sum(getattr(kind, "_specdec_intercepts", False) for kind in type(module).__mro__)
    slot = f"_specdec_handler_{depth}"
    object.__setattr__(module, slot, handler)
    object.__setattr__(module, "__class__", _intercepting(module.__class__, slot))


@cache
def _intercepting(kind: Any, slot: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, slot)(self, kind.__call__, args, kwargs)

    return type(kind.__name__, (kind,), {"__call__": call, "_specdec_intercepts": True})
