"""Whether a draft sees the masks of a constraint (pure). Law: either way is exact; which is cheaper is measured.

A masked step waits until the token before it is read back and the host has computed its mask. Without masks a draft
runs through, and ends at its first illegal token. So the seconds of masked steps stand against the tokens that such an
end loses: those that would have been accepted behind it, had the draft known better.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import exp
from statistics import mean, median
from typing import Any

from specdec_cli.engine.draft_length.acceptance import WINDOW_ROUNDS, AcceptanceRecord
from specdec_cli.events import Round
from specdec_cli.kinds import learns_from
from specdec_cli.speedup import expected_tokens

# Rounds of a trial of the other way, and the tokens after whose loss it ends at once.
TRIAL_ROUNDS, TRIAL_TOKENS = 4, 2.0
# Rounds until the next trial: doubled after each that changes nothing.
FIRST_WAIT_ROUNDS, LAST_WAIT_ROUNDS = 16, 512
# A median of so many rounds of one K.
KEPT_ROUNDS = 9
# What was written down longer ago is not believed.
BELIEVED_SECONDS = 30 * 86400.0


class DraftMasking:
    """One object per pair, machine and length of context serves every reply. Drafts begin `masked`."""

    def __init__(self, masked: bool = True) -> None:
        self.masked = masked
        """Whether the next draft is masked: the cheaper way so far, or the other one while that is tried."""
        self._better = masked
        self._wait, self._left = FIRST_WAIT_ROUNDS, FIRST_WAIT_ROUNDS
        self._seconds: dict[tuple[bool, int], deque[float]] = {}
        # Steps of each unmasked draft, and tokens that its early end lost.
        self._unmasked: deque[tuple[int, float]] = deque(maxlen=WINDOW_ROUNDS)
        self._trial_lost = 0.0
        self._acceptance = AcceptanceRecord()
        self._spent = self._emitted = 0.0

    def observe(self, round: Round, legal: int, drafted: int) -> None:
        """A finished round, of whose `drafted` tokens the first `legal` ones were legal; lookups teach nothing."""
        if not drafted or not learns_from(round.drafter) or round.draft_prefill_seconds:
            return
        seconds, fade = round.draft_seconds + round.verify_seconds, exp(-1 / WINDOW_ROUNDS)
        self._seconds.setdefault((self.masked, drafted), deque(maxlen=KEPT_ROUNDS)).append(seconds)
        self._spent, self._emitted = self._spent * fade + seconds, self._emitted * fade + len(round.emitted)
        lost = 0.0
        if not self.masked:
            if round.accepted == legal < drafted:
                lost = expected_tokens(self._acceptance.rates(drafted)[legal:])[-1] - 1
            self._unmasked.append((drafted, lost))
        if legal:
            self._acceptance.drafted(legal, min(round.accepted, legal), len(round.emitted))
        self._turn(lost)

    def _turn(self, lost: float) -> None:
        """Begin or end a trial when it is time."""
        self._left -= 1
        trying = self.masked != self._better
        self._trial_lost = self._trial_lost + lost if trying else 0.0
        if self._left and not (trying and self._trial_lost > TRIAL_TOKENS):
            return
        if not trying:
            self.masked, self._left = not self._better, TRIAL_ROUNDS
            return
        gain = self.gain_seconds()
        better = self._better if gain is None else gain <= 0
        self._wait = FIRST_WAIT_ROUNDS if better != self._better else min(2 * self._wait, LAST_WAIT_ROUNDS)
        self.masked = self._better = better
        self._left = self._wait

    def gain_seconds(self) -> float | None:
        """What unmasked drafts gain a round, as they were measured; None before both ways were, at one K."""
        both = {k for way, k in self._seconds if way} & {k for way, k in self._seconds if not way}
        if not both or not self._unmasked:
            return None
        step = mean((median(self._seconds[True, k]) - median(self._seconds[False, k])) / k for k in both)
        steps, lost = mean(steps for steps, _ in self._unmasked), mean(lost for _, lost in self._unmasked)
        return step * steps - lost * self._spent / self._emitted

    def to_dict(self, now_seconds: float) -> dict[str, Any]:
        """The better way, for a later process to begin with; `now_seconds` since the epoch."""
        return {"at": now_seconds, "masked": self._better}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None, now_seconds: float) -> DraftMasking:
        """What `to_dict` wrote; a masked beginning where it is nothing, too old or nonsense."""
        values = values or {}
        at, masked = values.get("at"), values.get("masked")
        fresh = isinstance(at, int | float) and 0 <= now_seconds - at <= BELIEVED_SECONDS
        return cls(masked if fresh and isinstance(masked, bool) else True)
