"""K from measured costs and recent acceptance (pure). Law: 0 unless drafting pays; finding out has a budget of 2 %.

Every round K = argmin of seconds a round / tokens a round, K = 0 included. While drafting, every K within reach is
compared each round. Old measurements lose weight, so a K that may have become better is tried. While parked at 0 only a
look measures: drafted rounds on a budget, rarer while they do not pay. Ollama's MLX runner chooses by the same ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import exp, inf, log
from typing import Any

from specdec_cli.engine.draft_length.acceptance import AcceptanceRecord
from specdec_cli.engine.draft_length.costs import CostRecord
from specdec_cli.engine.draft_length.estimates import (
    HOPED_RATE,
    Choice,
    cheapest,
    cheapest_lookup,
    coming_tokens,
    loss_steps,
    pays,
    plain_doubt,
)
from specdec_cli.engine.draft_length.exploration import LAST_WAIT_ROUNDS, RECONSIDER_ROUNDS, Exploration
from specdec_cli.engine.draft_length.look import RISKED_SHARE, Look
from specdec_cli.engine.draft_length.ratios import Costs, costs_from_dict
from specdec_cli.engine.draft_length.unread import Unread
from specdec_cli.events import Round
from specdec_cli.kinds import UNTRIED, learns_from
from specdec_cli.request import MAX_K

# What was written down longer ago is not believed.
BELIEVED_SECONDS = 30 * 86400.0


class Adaptive:
    """Chooses K each round. One object per pair and drafter serves every reply; `begin` starts each."""

    def __init__(
        self,
        assumed: Costs | None = None,
        max_k: int = MAX_K,
        acceptance: AcceptanceRecord | None = None,
        reload_seconds: float = 0.0,
    ) -> None:
        """`max_k` 0: there is no draft model. `reload_seconds` is the time a released draft takes to be ready again."""
        self.costs = CostRecord(assumed or Costs())
        self.acceptance = acceptance or AcceptanceRecord()
        self._max_k = max_k
        self._left: float = inf
        self._unread = Unread(reload_seconds)
        self._emitted = 0
        self._after_plain = False
        self._coming = 0
        # Decoding plainly because drafting does not pay, or was not tried yet.
        self.parked = True
        self._look, self._exploration = Look(), Exploration()
        self.reason = UNTRIED if max_k else ""

    def begin(
        self,
        left_tokens: int,
        unread_tokens: int = 0,
        unread_seconds: float | None = None,
        most_unread: float = inf,
    ) -> None:
        """Start a reply: tokens it may have, context the draft has not read, and an estimate of reading it.

        `most_unread`: what a draft that keeps up with plain rounds ever has to read at once.
        """
        self._left, self._emitted = left_tokens, 0
        self._unread.begin(unread_tokens, unread_seconds, most_unread)
        self._after_plain = False
        self.costs.begin()
        self._exploration.begin(self.parked)

    def expect_reading(self, seconds: float | None) -> None:
        """`seconds` is the estimated cost of reading all unread context; None: as measured or assumed."""
        self._unread.expect(seconds)

    @property
    def resting(self) -> bool:
        """Whether the draft may give its memory back."""
        return self._unread.resting

    def next(self) -> int:
        """K of the next round. Asked once a round, before a plain round in flight is observed."""
        self._coming = self._next()
        return self._coming

    def _next(self) -> int:
        if not self._max_k or self._exploration.waits():
            return 0
        return self._while_parked() if self.parked else self._while_drafting()

    def lookup_k(self, rates: list[float]) -> int:
        """K of a lookup with these rates; 0 where the model, or plain decoding, costs less.

        While a look at the model begins nothing is looked up, or it would learn nothing.
        """
        drafts = bool(self._max_k) and not self.parked
        if self._looking or not (drafts or self.costs.ready):
            return 0
        found = cheapest_lookup(rates, self.costs)
        rival = cheapest(self._rates(), self.costs).seconds if drafts else self.costs.plain_seconds()
        if not found.k or found.seconds >= rival:
            return 0
        self._coming = found.k
        return found.k

    def observe(self, round: Round) -> None:
        """Learn the cost and the acceptance of one round."""
        emitted = len(round.emitted)
        self._left, self._emitted = self._left - emitted, self._emitted + emitted
        self._unread.context += emitted
        self._exploration.tokens += emitted
        if learns_from(round.drafter):
            self._observe_drafted(round)
        else:
            self._unread.tokens += emitted
            self.acceptance.passed(emitted)
            # A plain round after a drafted one, or a reply's first, starts the pipeline and costs more than a step. One
            # before a drafted round, or a reply's last, seems to cost less: queueing its successor blocked the host
            # in the round before, and nothing blocks it now.
            if self._after_plain and not round.draft:
                if not self._coming and self._left > 0:
                    self.costs.plain(round.verify_seconds)
            elif not round.draft:
                self.costs.restarted(round.verify_seconds)
            else:
                # A lookup has no cost of its own: all its time is the pass's.
                self.costs.drafted(len(round.draft), None, round.draft_seconds + round.verify_seconds)
        self._after_plain = not round.draft

    def _observe_drafted(self, round: Round) -> None:
        k = len(round.draft)
        unread, resting = self._unread.tokens, self._unread.resting
        caught_up = unread > 0 and not round.draft_prefill_seconds
        if round.draft_prefill_seconds and not resting:
            self.costs.prefilled(unread, round.draft_prefill_seconds)
        elif caught_up and self.costs.ready and not resting:
            self.costs.prefilled(unread, round.draft_seconds - self.costs.draft_seconds(k))
        self._unread.read()
        self.costs.drafted(k, None if caught_up else round.draft_seconds, round.verify_seconds)
        self.acceptance.drafted(k, round.accepted, len(round.emitted))
        self._look.add((round.draft_seconds + round.verify_seconds) / self.costs.plain_seconds(), len(round.emitted))

    def _while_parked(self) -> int:
        plain, reading = self.costs.plain_seconds(), self._unread.seconds(self.costs)
        hoped = cheapest([HOPED_RATE] * self._max_k, self.costs)
        possible = hoped
        if hoped.seconds >= plain:  # but rows that were never measured here may cost less: only a look tells
            possible = hoped._replace(seconds=hoped.seconds * exp(-self.costs.rows_doubt))
        exploration, left = self._exploration, self._left
        if not self.costs.prefill_known:
            reading *= exp(self.costs.assumed.doubt)  # may cost more than is assumed
        may_lose = min(exploration.steps(left) - reading / plain, exploration.most_steps(left))
        first = cheapest(self._rates(), self.costs, RISKED_SHARE * may_lose)
        price = loss_steps(first, self.costs) * plain + reading
        taught = exploration.taught_tokens(left, self._emitted)
        promising = pays(possible, price, self.costs, taught, exploration.failures)
        if possible.seconds >= plain:
            # No text could make it pay, unless its costs were measured at a bad moment.
            promising = self.costs.ready and exploration.rechecks(price / plain, left)
            self._unread.rest()
        if loss_steps(first, self.costs) > may_lose or not promising:
            exploration.wait = RECONSIDER_ROUNDS
            if exploration.rounds_since == inf:
                self.reason = UNTRIED if possible.seconds < plain else "no draft is expected to pay here"
            return 0
        if self._measures_plain(hoped):
            return 0
        self.parked, self._look = False, Look(may_lose)
        exploration.looked()
        self.reason = "looking whether drafting pays"
        return first.k

    def _measures_plain(self, choice: Choice) -> bool:
        """Whether the gain of `choice` is within the doubt about a plain step, so that this one is measured first."""
        if log(max(self.costs.plain_seconds() / choice.seconds, 1.0)) >= plain_doubt(self.costs):
            return False
        # This round and three more: the first starts the pipeline, the last ends it, and neither is counted.
        self._exploration.wait = 3
        return True

    def _while_drafting(self) -> int:
        plain, look = self.costs.plain_seconds(), self._look
        if self._looking:
            choice = cheapest(self._rates(), self.costs, RISKED_SHARE * look.left)
            if loss_steps(choice, self.costs) <= look.left and not (look.rounds > 1 and self._hopeless()):
                return choice.k
        best = cheapest(self._rates(), self.costs)
        yielded = f"{best.tokens:.1f} tokens a round cost {best.tokens * best.seconds / plain:.1f} plain steps"
        if self._hopeless():
            self._park()
            self.reason = f"parked: {yielded}"
            return 0
        reading = self._unread.seconds(self.costs)
        if reading > plain and not pays(best, reading, self.costs, coming_tokens(self._left, self._emitted)):
            self._exploration.wait = RECONSIDER_ROUNDS
            unread, steps = self._unread.tokens, reading / plain
            self.reason = f"short answer: reading {unread} tokens would cost the draft {steps:.0f} plain steps"
            return 0
        if self._measures_plain(best):
            return 0
        self.reason = yielded
        return best.k

    @property
    def _looking(self) -> bool:
        return not self.parked and self._look.beginning

    def _hopeless(self) -> bool:
        """Whether drafting loses even if its acceptance is as high as what was judged allows."""
        rates = self.acceptance.hopeful_rates(self._deepest(), self._look.hope)
        return cheapest(rates, self.costs).seconds >= self.costs.plain_seconds()

    def _park(self) -> None:
        self._exploration.gave_up(self._look)
        self.parked = True
        if self._exploration.wait == LAST_WAIT_ROUNDS:
            self._unread.rest()

    def _rates(self) -> list[float]:
        """Rates as far as a round may now reach."""
        return self.acceptance.rates(self._deepest())

    def _deepest(self) -> int:
        """Deepest K that may be compared now: where nothing is known of the machine, one more than was judged."""
        reach = self.acceptance.reach if self.costs.shape_known else self.acceptance.frontier + 1
        return int(min(self._max_k, reach))

    def to_dict(self, now_seconds: float) -> dict[str, Any]:
        """Costs, acceptance and looks for a later process to start from; `now_seconds` since the epoch."""
        costs = asdict(self.costs.to_costs()) if self.costs.ready else asdict(self.costs.assumed)
        looks = self._exploration.to_dict(self.parked)
        return {"at": now_seconds, "costs": costs, "acceptance": self.acceptance.to_dict(), "looks": looks}

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], now_seconds: float, max_k: int = MAX_K, reload_seconds: float = 0.0
    ) -> Adaptive | None:
        """A controller that assumes what `to_dict` wrote; None when that is too old. Raises KeyError, TypeError and
        ValueError for anything else."""
        if not 0 <= now_seconds - float(values["at"]) <= BELIEVED_SECONDS:
            return None
        adaptive = cls(costs_from_dict(values["costs"]), max_k, reload_seconds=reload_seconds)
        adaptive.acceptance.restore(values["acceptance"])
        adaptive._exploration.restore(values["looks"])
        adaptive._exploration.known = float(values["acceptance"]["judged"]) > 0
        if max_k and cheapest(adaptive._rates(), adaptive.costs).seconds < adaptive.costs.plain_seconds():
            adaptive._exploration.forgive()
        elif max_k and adaptive._exploration.rounds_since < inf:
            adaptive.reason = "parked: drafting did not pay before"
        return adaptive
