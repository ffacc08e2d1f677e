"""A loaded pair, and conversations with it."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

_MOVED = {"Request": "specdec_cli.request", "Session": "specdec_cli.session.session"}


def __getattr__(name: str) -> Any:
    """Old import paths, kept for one version."""
    if name == "open_session":
        warnings.warn("specdec_cli.load(pair).session() replaces open_session", DeprecationWarning, stacklevel=2)
        return _open_session
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"import {name} from {_MOVED[name]} or specdec_cli", DeprecationWarning, stacklevel=2)
    return getattr(import_module(_MOVED[name]), name)


def _open_session(
    pair: Any, drafter: str | None = None, room_tokens: int | None = None, kv_bits: int | None = None, **more: Any
) -> Any:
    load = import_module("specdec_cli.session.load").load
    return load(pair, drafter=drafter, reserve_tokens=room_tokens, kv_bits=kv_bits, **more).session()
