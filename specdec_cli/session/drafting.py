"""Who drafts and how much, learned over the replies of a session. Law: what is learned is kept, and never trusted
blindly: an assumption weighs one round, whether it comes from sizes or from an earlier run.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Literal

from specdec_cli.engine import device
from specdec_cli.engine.draft_length.adaptive import MAX_K, Adaptive
from specdec_cli.engine.draft_length.costs import Costs
from specdec_cli.engine.draft_length.fixed import DraftLength, Fixed
from specdec_cli.engine.draft_length.lookup_acceptance import LookupRecord
from specdec_cli.engine.drafters.auto import BettingDrafter, FixedRival
from specdec_cli.engine.drafters.base import Drafter, ModelDrafter, NoDrafter
from specdec_cli.engine.drafters.registry import AUTO, DRAFTERS
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule
from specdec_cli.pairs.advice import row_cost
from specdec_cli.session.cost_file import CostMemory, Forgetful

# Costs change with the length of the context: what was measured at another length is only an assumption.
CONTEXT_TOKENS = (1024, 4096, 16384, 65536)
K = int | Literal["auto"]


class Drafting:
    """One per session. `identity` says what costs depend on besides the length of the context: pair, machine, versions.

    `reload_seconds` is what loading the draft took, and so what a draft that gave its memory back costs again.
    """

    def __init__(
        self,
        target: CachedModel,
        draft: CachedModel | None,
        memory: CostMemory | None = None,
        identity: str = "",
        reload_seconds: float = 0.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._target, self._draft = target, draft
        self._memory, self._identity, self._now = memory or Forgetful(), identity, now
        self._reload_seconds = reload_seconds
        self._adaptive: dict[str, Adaptive] = {}
        self._lookups = LookupRecord()

    def begin(
        self, name: str, k: K, rule: AcceptanceRule, prompt: Sequence[int], max_tokens: int, prefill_seconds: float
    ) -> tuple[Drafter, DraftLength]:
        """For one reply to `prompt`, which the target took `prefill_seconds` to read."""
        if name == "none" or k == 0:
            return NoDrafter(), Fixed(0)
        if name != AUTO and k != "auto":
            return DRAFTERS[name](self._draft, self._target.width, rule), Fixed(k)
        draft = self._draft if name in ("model", AUTO) else None
        model = ModelDrafter(draft, self._target.width, rule) if draft else None
        rival = FixedRival(k) if k != "auto" else self._adaptive_for(draft, prompt, max_tokens, prefill_seconds)
        if name == "model" and isinstance(rival, Adaptive):
            return model or NoDrafter(), rival
        betting = BettingDrafter(rival, self._lookups, model)
        return betting, betting

    def remember(self) -> None:
        """Write down what was learned."""
        for situation, adaptive in self._adaptive.items():
            if adaptive.costs.ready:
                self._memory.write(f"{self._identity} · {situation}", adaptive.to_dict(self._now()))

    def _adaptive_for(
        self, draft: CachedModel | None, prompt: Sequence[int], max_tokens: int, prefill_seconds: float
    ) -> Adaptive:
        ratio = draft.weight_bytes / self._target.weight_bytes if draft else 0.0
        place = bisect_right(CONTEXT_TOKENS, len(prompt))
        situation = f"{'model' if draft else 'ngram'} · context {place}"
        if situation not in self._adaptive:
            self._adaptive[situation] = self._known(situation, draft) or Adaptive(
                Costs.of_ratio(ratio or 0.001, row_cost(device.device_name())),
                MAX_K if draft else 0,
                reload_seconds=self._reload_seconds,
            )
        adaptive = self._adaptive[situation]
        adaptive.begin(max_tokens, len(prompt), prefill_seconds * ratio if draft else None)
        return adaptive

    def _known(self, situation: str, draft: CachedModel | None) -> Adaptive | None:
        """What this session learned at another length of context, else what an earlier run wrote down."""
        kind = situation.partition(" ")[0]
        here = [known.to_dict(self._now()) for name, known in self._adaptive.items() if name.startswith(kind)]
        values = here[-1] if here else self._memory.read(f"{self._identity} · {situation}")
        if values is None:
            return None
        try:
            return Adaptive.from_dict(values, self._now(), MAX_K if draft else 0, self._reload_seconds)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
