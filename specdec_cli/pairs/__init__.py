"""Pairs: listed, resolved, checked and pulled."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Old import paths, kept for one version."""
    if name not in ("Pair", "Registry", "DEMO"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"import {name} from specdec_cli.pairs.pair or specdec_cli", DeprecationWarning, stacklevel=2)
    return getattr(import_module("specdec_cli.pairs.pair"), name)
