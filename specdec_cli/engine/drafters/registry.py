"""Every drafter by its `--drafter` name: (draft model or None, the target's V, how tokens are drawn) -> Drafter.

`auto` is the exception: `bets` joins the two others round by round, and remembers which of them was right.
"""

from __future__ import annotations

from collections.abc import Callable

from specdec_cli.engine.drafters.base import Drafter, ModelDrafter, NoDrafter
from specdec_cli.engine.drafters.ngram import NgramDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule

DRAFTERS: dict[str, Callable[[CachedModel | None, int, AcceptanceRule], Drafter]] = {
    "model": lambda draft, width, rule: NoDrafter() if draft is None else ModelDrafter(draft, width, rule),
    "ngram": lambda draft, width, rule: NgramDrafter(),
    "none": lambda draft, width, rule: NoDrafter(),
}
AUTO = "auto"
NAMES = (*DRAFTERS, AUTO)
