"""Every drafter by its `--drafter` name: (draft model or None, the target's V) -> Drafter."""

from __future__ import annotations

from collections.abc import Callable

from specdec_cli.engine.drafters import Drafter, ModelDrafter, NoDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.ngram import NgramDrafter

DRAFTERS: dict[str, Callable[[CachedModel | None, int], Drafter]] = {
    "model": lambda draft, width: NoDrafter() if draft is None else ModelDrafter(draft, width),
    "ngram": lambda draft, width: NgramDrafter(),
    "none": lambda draft, width: NoDrafter(),
}
