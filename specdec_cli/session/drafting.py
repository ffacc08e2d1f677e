"""The drafters of each reply of a session, and what its rounds have shown. Measurements are kept, and trusted little.

A reply of a fixed K teaches what it cost too, so that the first after a `bench` begins warm.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from specdec_cli.core.kinds import DrafterKind, K, import_named
from specdec_cli.core.request import MAX_K
from specdec_cli.core.speedup import BELIEVED_SECONDS, CostMemo
from specdec_cli.engine import device
from specdec_cli.engine.drafters.base import Drafter, Parts
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.lookup import LookupDrafter
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.engine.heads.cached_head import MOST_WAITING, CachedHead
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.planning import chips
from specdec_cli.engine.planning.costs import PREFILL_TOKENS, Costs
from specdec_cli.engine.planning.history import History
from specdec_cli.engine.planning.rates import LookupAcceptance
from specdec_cli.engine.sampling.acceptance import AcceptanceRule
from specdec_cli.engine.sampling.sampler import TokenMask
from specdec_cli.session.cost_file import CostStore, Values
from specdec_cli.system import blas

# Costs change with the length of the context: a measurement at another length is only an assumption.
CONTEXT_TOKENS = (1024, 4096, 16384, 65536)

# What rounds cost in plain steps, whatever chose their K: a key in the store, beside what -k auto learned.
ROUNDS = "rounds"
# Stands for a draft step where nothing but lookups draft.
LEAST_RATIO = 0.001


@dataclass
class DraftController:
    """One per session. Costs depend on `identity` (pair, machine, versions) and on the length of the context.

    `reload_seconds` is the time the draft took to load: a released draft costs it again.
    """

    target: CachedModel
    draft: CachedModel | CachedHead | None
    store: CostStore = field(default_factory=dict[str, Values])
    identity: str = ""
    reload_seconds: float = 0.0
    now: Callable[[], float] = time.time
    _histories: dict[str, History] = field(default_factory=dict)
    _lookups: LookupAcceptance = field(default_factory=LookupAcceptance)
    _situation: str = ""
    _round_costs: dict[str, CostMemo] = field(default_factory=dict)

    def begin(
        self,
        kind: DrafterKind,
        k: K,
        rule: AcceptanceRule,
        prompt: Sequence[int],
        max_tokens: int,
        predicted: Sequence[int] = (),
        constraint: TokenMask | None = None,
    ) -> Drafters:
        """For one reply to `prompt`, whose first tokens are `predicted`, inside `constraint` if there is one."""
        draft = self.draft if kind.by_network else None
        self._situation = _situation(prompt)
        drafter: Drafter | None = import_named(kind.make)(Parts(self.target, draft, rule)) if kind.make else None
        text = SuffixAutomaton(prompt, predicted) if kind.looks_up else None
        lookup = LookupDrafter(text, self._lookups) if text is not None else None
        history = self._history(kind, draft, prompt, max_tokens, k == "auto") if k == "auto" or draft else None
        return Drafters(drafter, k, lookup, constraint, history)

    def prompt_was_read(self, tokens: int, seconds: float) -> None:
        """The target took `seconds` for `tokens` of the prompt: an estimate for the draft, until that is measured.

        A head reads the prompt with the target.
        """
        ratio = 0.0 if isinstance(self.draft, CachedHead) else self._ratio(self.draft)
        token_seconds = seconds / tokens if tokens >= PREFILL_TOKENS else 0.0
        for history in self._histories.values():
            history.expect_reading(token_seconds * ratio or None)

    def known_costs(self) -> CostMemo:
        """Costs of rounds in plain steps at this length of context, as earlier replies and runs found them."""
        if self._situation not in self._round_costs:
            values = self.store.get(f"{self.identity} · {ROUNDS} · {self._situation}")
            self._round_costs[self._situation] = CostMemo.from_dict(values or {}, self.now())
        return self._round_costs[self._situation]

    def remember(self, found: CostMemo) -> None:
        """Write to the store what this reply measured, and what it `found` of the costs of rounds."""
        self._round_costs[self._situation] = found
        for situation, history in self._histories.items():
            if history.costs.plain_measured:
                self.store[f"{self.identity} · {situation}"] = history.to_dict(self.now())
        if found.costs:
            self.store[f"{self.identity} · {ROUNDS} · {self._situation}"] = found.to_dict(self.now())

    def _ratio(self, draft: CachedModel | CachedHead | None) -> float:
        """Weights that a draft step reads over those that a step of the target does."""
        return draft.step_bytes / self.target.step_bytes if draft else 0.0

    def _assume_costs(self, draft: CachedModel | CachedHead | None, context_tokens: int) -> Costs:
        """Costs before anything is measured: by the chip where it is known, and by the weights of the two models."""
        ratio = self._ratio(draft) or LEAST_RATIO
        if draft is not None:
            layers = draft.layers / self.target.layers
            ratio = chips.draft_step(ratio, layers, device.queues_ahead())
        network, value_bytes = self.target.network, 4 if self.target.dtype == "float32" else 2
        chip, expert_share = chips.chip_of(device.device_name()), network.expert_share
        if chip is None:
            has_blas = blas.load() not in (None, blas.REFERENCE)
            rows = chips.rows_elsewhere(expert_share, shares_reads=has_blas and network.packing is None)
        else:
            cache_share = self.target.cache_bytes(context_tokens, value_bytes) / self.target.step_bytes
            rows = chip.rows(network.widest, network.packing, cache_share, network.queries_a_key, expert_share)
        return Costs(rows, {1: ratio}, ratio / 8)

    def _history(
        self,
        kind: DrafterKind,
        draft: CachedModel | CachedHead | None,
        prompt: Sequence[int],
        max_tokens: int,
        chooses: bool,
    ) -> History:
        """That of this kind at this length of context. Without anything that learns it drafts nothing."""
        # Kinds that use the pair's draft share its measurements.
        situation = f"{'draft' if draft else kind.name} · {_situation(prompt)}"
        if situation not in self._histories:
            most = draft.most if isinstance(draft, CachedHead) else MAX_K
            costs, max_k = self._assume_costs(draft, len(prompt)), most if draft or kind.learns else 0
            self._histories[situation] = self._remembered(situation, costs, max_k)
        history = self._histories[situation]
        if isinstance(draft, CachedHead):  # it reads the prompt with the target, and keeps up with plain rounds
            history.begin(max_tokens, most_unread=MOST_WAITING, chooses=chooses)
        elif draft:
            history.begin(max_tokens, draft.unread(prompt), draft.recent or inf, len(prompt), chooses)
        else:
            history.begin(max_tokens, chooses=chooses)
        return history

    def _remembered(self, situation: str, assumed: Costs, max_k: int) -> History:
        """From what another length of context in this session showed, else from what an earlier run wrote down."""
        learner = situation.partition(" ")[0]
        here = [known.to_dict(self.now()) for name, known in self._histories.items() if name.startswith(learner)]
        kept = here[-1] if here else self.store.get(f"{self.identity} · {situation}")
        # Nonsense in a file is measured anew, and written over.
        with contextlib.suppress(KeyError, TypeError, ValueError, ArithmeticError):
            if kept and 0 <= self.now() - float(kept["at"]) <= BELIEVED_SECONDS:
                return History(assumed, max_k, self.reload_seconds, kept)
        return History(assumed, max_k, self.reload_seconds)


def _situation(prompt: Sequence[int]) -> str:
    return f"context {bisect_right(CONTEXT_TOKENS, len(prompt))}"
