"""The state of the panel, a fold over events (pure). Law: a round costs O(K), and only what is drawn is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from specdec_cli.events import Event, Failure, Finish, FinishReason, Prefill, RoundDone, Start
from specdec_cli.kinds import kind_of
from specdec_cli.stats import Stats

KEPT_ROUNDS: Final = 4
KEPT_KS: Final = 120


@dataclass(frozen=True, slots=True)
class PanelState:
    """One reply so far. `name` is the pair's; without one the target's name is shown.

    `recent` holds the newest rounds, newest first; `ks` the K of more rounds, newest last. `stats` is never mutated.
    `final` holds the figures of the finish event, which replace the running ones.
    """

    name: str = ""
    start: Start | None = None
    prefill: Prefill | None = None
    recent: tuple[RoundDone, ...] = ()
    ks: tuple[int, ...] = ()
    stats: Stats = field(default_factory=Stats)
    final: Mapping[str, Any] | None = None
    ended: FinishReason | None = None

    def apply(self, event: Event) -> PanelState:
        """The state after `event`; a Start resets it."""
        match event:
            case Start():
                return PanelState(name=self.name, start=event)
            case Prefill():
                return replace(self, prefill=event)
            case RoundDone():
                recent = (event, *self.recent[: KEPT_ROUNDS - 1])
                ks = (*self.ks[1 - KEPT_KS :], len(event.round.draft))
                return replace(self, recent=recent, ks=ks, stats=_folded(self.stats, event))
            case Finish():
                return replace(self, final=event.stats or None, ended=event.reason)
            case Failure():
                return self

    @property
    def figures(self) -> Mapping[str, Any]:
        """The `stats` object of the contract, running or final."""
        return self.final if self.final is not None else self.stats.to_dict()

    @property
    def adapts(self) -> bool:
        """Whether K is chosen each round."""
        return self.drafts and self.start is not None and self.start.k == "auto"

    @property
    def drafts(self) -> bool:
        """Whether this reply may draft at all."""
        return self.start is not None and kind_of(self.start.drafter).drafts and self.start.k != 0


def _folded(stats: Stats, done: RoundDone) -> Stats:
    """A new Stats with this round. Until the finish event, decode time is the sum of the passes."""
    folded = replace(
        stats,
        drafted_at=stats.drafted_at.copy(),
        accepted_at=stats.accepted_at.copy(),
        accepted_histogram=stats.accepted_histogram.copy(),
        rounds_at_k=stats.rounds_at_k.copy(),
    )
    folded.fold(done.round)
    if stats.rounds:  # the first token's pass is not decoding
        folded.decode_seconds += done.round.draft_seconds + done.round.verify_seconds
    return folded
