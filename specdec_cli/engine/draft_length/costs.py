"""Recent costs of rounds on this machine (pure). Law: medians of recent rounds; an assumption weighs one round.

Letters: n rows of a target pass (n = K + 1), K draft tokens. Seconds are kept as logarithms. Two things change: the
machine's speed (heat, battery, other programs, a longer context), common to all passes, and the shape (what n rows
cost beside one). Speed follows every round, so a cost that was last measured long ago is read at today's speed.
"""

from __future__ import annotations

from collections import deque
from math import exp, inf, log
from statistics import median_low

from specdec_cli.engine.draft_length.curve import TURN_ROUNDS, Curve
from specdec_cli.engine.draft_length.ratios import MEASURED_DOUBT, UNKNOWN_DOUBT, Costs
from specdec_cli.engine.draft_length.speed import SURE_ROUNDS, Speed

# Starts of the pipeline whose median bounds a plain step: the least of many would be that of the machine's best moment.
RESTARTS = 5
# Plain steps needed before anything is compared with them.
PLAIN_ROUNDS = 2
# Draft and verification both slower, or both faster, by this (log): their common part is the machine's.
COMMON = 0.15
# Rounds of one kind before it tells a disturbance from its own cost.
KNOWN_ROUNDS = 2
# Fewer tokens in one read say more about overhead than about the cost of a token.
PREFILL_TOKENS = 32


class CostRecord:
    """Costs of plain and drafted rounds as observed, over an assumption."""

    def __init__(self, assumed: Costs) -> None:
        self.assumed = assumed
        self._verify = Curve(assumed.rows, anchor=1, curious=not self.shape_known)
        self._draft = Curve(assumed.steps)
        self._prefill = Curve(lambda _: assumed.prefill_token)
        self._speed = Speed()
        self._restarts: deque[float] = deque(maxlen=RESTARTS)
        self._held: list[float] = []
        self._slowed, self._checked = 0.0, 0
        self._now = 0
        self._estimates: dict[tuple[Curve, int], float] = {}
        self._plain_log: float | None = None

    def begin(self) -> None:
        """A reply begins, maybe long after the one before."""
        self._read_held()
        self._speed.begin()

    def plain(self, seconds: float) -> None:
        """A plain round that follows another plain round."""
        self._changed()
        if seconds > 0:
            self._follow(1, log(seconds) - self._speed.log)
            self._verify.add(1, log(seconds) - self._speed.log, self._now)
            if self._slowed:
                self._check_plain()

    def _changed(self) -> None:
        """What was computed from the measurements, every K being asked for several times a round, no longer holds."""
        self._estimates.clear()
        self._plain_log = None

    def _check_plain(self) -> None:
        """Wider passes slowed down, and the speed of all followed: does this hold for a plain step?"""
        self._checked += 1
        self._verify.forget_old(1)
        if self._checked == TURN_ROUNDS:
            self._slowed, self._checked = 0.0, 0

    def restarted(self, seconds: float) -> None:
        """A plain round that nothing was queued for: no measure, but a plain step takes no longer."""
        self._changed()
        if seconds > 0:
            self._held.append(log(seconds))
            if not (self._speed.settling and self._now):
                self._read_held()

    def _read_held(self) -> None:
        """Starts of the pipeline, read at the speed that the rounds after them showed."""
        self._changed()
        self._restarts.extend(value - self._speed.log for value in self._held)
        self._held.clear()

    def drafted(self, k: int, draft_seconds: float | None, verify_seconds: float) -> None:
        """A round of k; `draft_seconds` None where they include reading what plain rounds had emitted."""
        self._changed()
        self._now += 1
        if verify_seconds <= 0:
            return
        verify = log(verify_seconds) - self._speed.log
        draft = log(draft_seconds) - self._speed.log if draft_seconds else None
        common = 0.0 if draft is None else self._common(k, draft, verify)
        self._follow(k + 1, verify)
        self._verify.add(k + 1, verify - common, self._now)
        if draft is not None:
            self._draft.add(k, draft - common, self._now)

    def _common(self, k: int, draft: float, verify: float) -> float:
        """The part of this round's surprise that its draft and its verification share."""
        if min(self._draft.count(k), self._verify.count(k + 1)) < KNOWN_ROUNDS:
            return 0.0
        first, second = draft - self._draft.median(k), verify - self._verify.median(k + 1)
        if min(first, second) > COMMON:
            return min(first, second)
        return max(first, second) if max(first, second) < -COMMON else 0.0

    def prefilled(self, tokens: int, seconds: float) -> None:
        """The draft read `tokens` tokens of context at once."""
        self._changed()
        if tokens >= PREFILL_TOKENS and seconds > 0:
            self._prefill.add(1, log(seconds / tokens) - self._speed.log, self._now)

    def _follow(self, rows: int, value: float) -> None:
        """Let the speed follow a pass of `rows` that took `value` log seconds at today's speed."""
        if self._verify.count(rows) < self._speed.sure_rounds:
            return
        step = self._speed.follow(value - self._verify.median(rows))
        # A hot machine may be slower at many rows and not at one.
        self._slowed += abs(step) if rows > 1 else 0.0
        if not self._speed.settling:
            self._read_held()

    @property
    def ready(self) -> bool:
        """Plain steps have been seen, in this process."""
        return self._verify.count(1) >= PLAIN_ROUNDS

    @property
    def shape_known(self) -> bool:
        """Whether the assumed costs are those of this kind of machine, or were measured by an earlier process."""
        return self.assumed.doubt < UNKNOWN_DOUBT

    @property
    def most_rows(self) -> int:
        """The most rows of a pass that was measured; 1 before any was."""
        return self._verify.largest(1)

    @property
    def rows_doubt(self) -> float:
        """How far (log) the cost of further rows may be off: as assumed, until this machine was measured."""
        return 0.0 if self._verify.confirmed() or self.assumed.doubt <= MEASURED_DOUBT else self.assumed.doubt

    @property
    def prefill_known(self) -> bool:
        return self._prefill.count(1) > 0

    def plain_seen(self) -> tuple[int, int]:
        """Plain rounds within memory, and drafted rounds since the last."""
        return self._verify.count(1), self._verify.age(1, self._now)

    def plain_seconds(self) -> float:
        """A plain step, now; before anything was measured all costs are in plain steps."""
        return exp(self._plain() + self._speed.log)

    def _plain(self) -> float:
        """Log seconds of a plain step at today's speed."""
        if self._plain_log is None:
            self._plain_log = self._least_plain()
        return self._plain_log

    def _least_plain(self) -> float:
        """Its median; until it was measured, the least that other rounds suggest.

        Seen a few times only, it is at most what starting the pipeline took, and a pass of more rows.
        """
        seen = self._verify.count(1)
        if seen >= SURE_ROUNDS:
            return self._verify.median(1)
        bounds = [median_low(self._restarts) if self._restarts else inf, *self._verify.confirmed()]
        if seen:
            return min(self._verify.median(1), *bounds)
        implied = self._implied_plain()
        least = min([*bounds, *([] if implied is None else [implied])])
        return least if least < inf else 0.0

    def _implied_plain(self) -> float | None:
        """Log seconds of a plain step, if passes of more rows cost what is assumed."""
        found = self._verify.implied()
        return median_low(found) if found else None

    def plain_dispute(self) -> float:
        """How far (log) a plain step may be off, by what passes of more rows say.

        Either they slowed down since it was measured, or it was measured a few times only and they contradict it.
        """
        if self._slowed:
            return self._slowed
        implied = self._implied_plain()
        if implied is None or not 0 < self._verify.count(1) < SURE_ROUNDS:
            return 0.0
        return max(abs(self._verify.median(1) - implied) - self.assumed.doubt, 0.0)

    def round_seconds(self, k: int) -> float:
        """K draft steps and a pass of K + 1 rows, now."""
        return self.draft_seconds(k) + self.verify_seconds(k) if k else self.plain_seconds()

    def verify_seconds(self, k: int) -> float:
        """A pass of K + 1 rows, now."""
        return self._seconds(self._verify, k + 1) if k else self.plain_seconds()

    def draft_seconds(self, k: int) -> float:
        """K > 0 draft steps, now."""
        return self._seconds(self._draft, k)

    def _seconds(self, curve: Curve, n: int) -> float:
        if (curve, n) not in self._estimates:
            self._estimates[curve, n] = exp(curve.estimate(n, self._plain(), self._now) + self._speed.log)
        return self._estimates[curve, n]

    def prefill_token_seconds(self) -> float:
        """The draft's reading of one token of a long stretch of context, now."""
        if self._prefill.count(1):
            return exp(self._prefill.median(1) + self._speed.log)
        return self._seconds(self._prefill, 1)

    def to_costs(self) -> Costs:
        """The measurements as the assumption of a later process: ratios only, as plain steps are measured anew."""
        plain = self._plain()
        verify = self._verify.table(plain, self.assumed.verify, self._now)
        draft = self._draft.table(plain, self.assumed.draft, self._now)
        prefill_token = round(self.prefill_token_seconds() / self.plain_seconds(), 6)
        doubt = MEASURED_DOUBT if self._verify.confirmed() else self.assumed.doubt
        return Costs(verify, draft, prefill_token, doubt)
