"""The state of the panel, a fold over events (pure). A round costs O(K), and only what is drawn is kept."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final

from specdec_cli.core.events import Event, Failure, Finish, FinishReason, Prefill, Reading, RoundDone, Start
from specdec_cli.core.gain import Gain
from specdec_cli.core.kinds import kind_of
from specdec_cli.core.stats import Stats

KEPT_ROUNDS: Final = 6


@dataclass(frozen=True, slots=True)
class PanelState:
    """One reply so far. `name` is the pair's; without one the target's name is shown.

    `recent` holds the newest rounds, newest last. `began` and `read_at` are the seconds of the start, and of the last
    piece of the prompt that was read; it is `now`. `stats` is never mutated. `final` holds the figures of the finish
    event, which replace the running ones.
    """

    name: str = ""
    start: Start | None = None
    began: float = 0.0
    reading: Reading | None = None
    read_at: float = 0.0
    now: float = 0.0
    prefill: Prefill | None = None
    recent: tuple[RoundDone, ...] = ()
    stats: Stats = field(default_factory=Stats)
    final: Mapping[str, Any] | None = None
    ended: FinishReason | None = None

    def apply(self, event: Event, now: float = 0.0) -> PanelState:
        """The state after `event`, which came at `now` seconds."""
        match event:
            case Start():
                return PanelState(name=self.name, start=event, began=now, now=now)
            case Reading():
                return replace(self, reading=event, read_at=now, now=now)
            case Prefill():
                return replace(self, prefill=event)
            case RoundDone():
                return replace(self, recent=(*self.recent[1 - KEPT_ROUNDS :], event), stats=_folded(self.stats, event))
            case Finish():
                return replace(self, final=event.stats or None, ended=event.reason)
            case Failure():
                return self

    @property
    def figures(self) -> Mapping[str, Any]:
        """The `stats` object of the contract, running or final."""
        return self.final if self.final is not None else self.stats.to_dict()

    @property
    def gain(self) -> Gain | None:
        """What drafting gained so far; None where too little is known to say."""
        if self.final is None:
            return self.recent[-1].gain if self.recent else None
        return Gain.of_stats(self.final)

    @property
    def drafts(self) -> bool:
        """Whether this reply may draft at all."""
        return self.start is not None and drafting(self.start)


def drafting(start: Start) -> bool:
    """Whether the reply that begins so may draft at all: what a shape forces is drafted in any case."""
    return start.constraint is not None or kind_of(start.drafter).drafts


def _folded(stats: Stats, done: RoundDone) -> Stats:
    """A new Stats with this round. Until the finish event, decode time is the sum of the passes."""
    folded = deepcopy(stats)
    folded.fold(done.round)
    if stats.rounds:  # the first token's pass is not decoding
        folded.decode_seconds += done.round.draft_seconds + done.round.verify_seconds
    return folded
