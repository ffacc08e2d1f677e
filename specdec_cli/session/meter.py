"""Plain decoding measured beside a reply: at most 2 % of the time goes into it, and K stays as asked.

Why extra steps, rolled back, and no plain rounds: under a fixed K every round drafts K, and what a seed draws under
`token` and `block` depends on the rounds, so a round that is plain because of a clock would change the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec_cli.core.events import Round
from specdec_cli.core.gain import Gain
from specdec_cli.core.speedup import CostMemo, Meter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.planning.policy import coming_tokens
from specdec_cli.engine.sampling.acceptance import AcceptanceRule
from specdec_cli.engine.timing import plain_step_seconds

# Share of the time of the tokens so far, and of those that are likely to come, that may be spent on measuring: somewhat
# less than the law's, because the tokens to come may take less time than those so far.
MEASURED_SHARE = 0.018
# Counted steps of a measurement amid the reply; rounds, at least, before another is thought of.
STEPS, APART_ROUNDS = 1, 8
# The step before them that wakes the device takes so many plain steps.
WAKING_STEPS = 1.3
# Counted steps once the answer is out, for a person who reads it then. A program waits for them, and for the step that
# wakes the device: 64 tokens were measured to take 1.11 to 1.19 times as long.
LAST_STEPS = 4
# The running figure is computed anew after this share of the rounds so far, so that it costs nothing.
REFRESHED = 1 / 8


@dataclass
class GainMeter:
    """Of one reply. `clock` is `outer_clock`, the session's, less what measuring took: that is in no round's seconds.

    `context` grows with the reply; `left` tokens may come yet. Whoever else is to measure with this `agrees` on when.
    """

    target: CachedModel
    rule: AcceptanceRule
    context: Sequence[int]
    meter: Meter
    outer_clock: Clock
    left: int
    agrees: Callable[[bool], bool] = bool
    seconds: float = 0.0
    gain: Gain | None = None
    _next_at: float = 0.0
    _refresh_at: float = 0.0
    _drafted: bool = False

    def clock(self) -> float:
        return self.outer_clock() - self.seconds

    def fold(self, round: Round) -> Gain | None:
        """One round; what drafting gained so far."""
        self.left -= len(round.emitted)
        self._drafted = bool(round.draft)
        self.meter.fold(round)
        if self.meter.shows and self.meter.rounds >= self._refresh_at:
            self._refresh()
        return self.gain

    def measure(self) -> None:
        """A plain step after a drafted round, if it is time for one and it is within the budget.

        None while other replies share its passes: its own caches are behind then, and would take the step for text.
        """
        if self.target.row is None and self._due() and self.agrees(self._within_budget()):
            began = self.outer_clock()
            self._measure(STEPS)
            self.seconds += self.outer_clock() - began

    def _due(self) -> bool:
        """Whether one is thought of, by the number of rounds."""
        rounds, measurable = self.meter.rounds, self._drafted and self.left > STEPS + 1
        if not measurable or not self.meter.comparable or rounds < self._next_at:
            return False
        self._next_at = rounds + max(APART_ROUNDS, rounds * REFRESHED)
        return True

    def _within_budget(self) -> bool:
        tokens = self.meter.tokens
        likely = tokens + coming_tokens(self.left, tokens)
        budget_seconds = MEASURED_SHARE * likely * self.meter.seconds / tokens
        return self.seconds + (WAKING_STEPS + STEPS) * self.meter.step_seconds <= budget_seconds

    def finish(self, complete: bool) -> Gain | None:
        """What drafting gained in all; `complete`: nobody interrupted, nor waits: there is time to measure again."""
        positions = self.target.network.positions
        there = positions is None or len(self.context) + LAST_STEPS <= positions
        if self.agrees(complete and self.meter.shows and there):
            self._measure(LAST_STEPS)
        self._refresh()
        return self.gain

    def learn(self) -> CostMemo:
        """For the next reply."""
        return self.meter.learn()

    def _measure(self, steps: int) -> None:
        self.meter.add_plain_steps(plain_step_seconds(self.target, self.rule, self.context, steps, self.outer_clock))

    def _refresh(self) -> None:
        self._refresh_at = self.meter.rounds * (1 + REFRESHED)
        self.gain = self.meter.gain(self.seconds)


class Stopwatch:
    """A clock that runs only inside its own context, which may nest: it stands still while others have their turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept = 0.0
        self._since: float | None = None
        self._depth = 0

    def __call__(self) -> float:
        return self._kept + (0.0 if self._since is None else self._clock() - self._since)

    def __enter__(self) -> Stopwatch:
        if not self._depth:
            self._since = self._clock()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._kept, self._since = self(), None
