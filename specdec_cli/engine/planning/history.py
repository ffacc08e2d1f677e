"""What the rounds of a pair have shown, kept from reply to reply, and the situation of the next round (pure).

Law: rounds change it, plans do not, but for a draft that is released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from specdec_cli.core.events import Round
from specdec_cli.core.kinds import PREDICTED, learns_from
from specdec_cli.core.request import MAX_K
from specdec_cli.engine.planning.costs import FORGET_TOKENS, Costs, RoundCosts
from specdec_cli.engine.planning.policy import SHARE, TYPICAL_TOKENS, Plan, Situation
from specdec_cli.engine.planning.rates import MAX_LOOKUP, SHORTEST_MATCH, Acceptance

# Plain steps that rounds which are tried may lose at most, and a share of the reply. With 2 nothing changes by 1 %.
MOST_CREDIT = 4.0
# K of the first try of what was predicted, doubled while all of it is accepted.
FIRST_TRY = 2
# Plain steps that predicted drafts may lose before they rest for so many tokens, twice as many each time; gains count
# up to as many steps.
MOST_LOST, FIRST_REST = 2.0, 16


@dataclass(slots=True)
class PredictionLength:
    """K of what was predicted, by what its own drafts gained and lost in this reply.

    A caller who predicts knows something, so it is tried at once, whatever is known of the machine and whatever other
    drafts lost. A round of n rows hardly costs more than n plain steps, so what is right never loses.
    """

    k: int = FIRST_TRY
    lost: float = 0.0
    rest_tokens: int = 0
    _next_rest: int = FIRST_REST
    _plain_seconds: float = inf

    def k_of(self, match: int) -> int:
        """K of a predicted draft after a match of `match` tokens; 0 where the prediction does not draft."""
        return min(self.k, match) if match >= SHORTEST_MATCH and self.rest_tokens <= 0 else 0

    def observe(self, round: Round, plain_seconds: float) -> None:
        """Learn from a finished round of any drafter; a plain step takes `plain_seconds` if this reply had none."""
        self.rest_tokens -= len(round.emitted)
        if not round.draft:
            self._plain_seconds = min(self._plain_seconds, round.verify_seconds)
        if round.drafter != PREDICTED.name or round.batch_size > 1:
            return
        seconds = round.draft_seconds + round.verify_seconds
        plain_seconds = plain_seconds if self._plain_seconds == inf else self._plain_seconds
        steps = seconds / plain_seconds if plain_seconds else len(round.draft) + 1
        self.lost = max(self.lost + steps - len(round.emitted), -MOST_LOST)
        whole = round.accepted == len(round.draft)
        self.k = min(max(self.k, 2 * len(round.draft)), MAX_LOOKUP) if whole else max(round.accepted, FIRST_TRY)
        if self.lost < 0:
            self._next_rest = FIRST_REST
        elif self.lost > MOST_LOST:
            self.rest_tokens, self.lost = self._next_rest, 0.0
            self._next_rest *= 2


class History:
    """Costs and acceptance of one pair and length of context. One serves every reply; `begin` starts each."""

    def __init__(
        self,
        assumed: Costs | None = None,
        max_k: int = MAX_K,
        reload_seconds: float = 0.0,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        """`max_k` 0: there is no draft. `reload_seconds` is the time a released draft takes to be ready again.

        `kept` is what `to_dict` wrote, in this process or an earlier one. Raises KeyError, TypeError or ValueError for
        anything else.
        """
        self.acceptance, self._credit = Acceptance(), 0.0
        known = None
        if kept is not None:
            self.acceptance = Acceptance(float(kept["judged"]), float(kept["accepted"]))
            self._credit = float(kept["credit"])
            known = Costs.from_dict(kept["costs"])
        self.costs = RoundCosts(assumed or Costs(), known)
        self._max_k, self._reload_seconds = max_k, reload_seconds
        self._left, self._emitted, self._idle, self._chooses = inf, 0, 0, True
        # Context that the draft has not read; the most that it ever reads at once, and an estimate for a token of it.
        self._unread, self._context, self._most_unread = 0, 0, inf
        self._read_token_seconds: float | None = None
        self._released = False

    def begin(
        self,
        left: int,
        unread_tokens: int = 0,
        most_unread: float = inf,
        context_tokens: int | None = None,
        chooses: bool = True,
    ) -> None:
        """Start a reply: tokens it may have, context the draft has not read, of all that there is.

        `most_unread`: what a draft ever has to read at once, if it keeps up with plain rounds or reads the end alone.
        `chooses`: K is planned here; where it is fixed, nothing is held against drafting that it loses.
        """
        self._chooses = chooses
        self._left, self._emitted, self._most_unread = left, 0, most_unread
        self._unread, self._context = unread_tokens, unread_tokens if context_tokens is None else context_tokens
        self.expect_reading(None)
        self.acceptance.begin()
        # What drafts lost in other texts takes no more than this reply's own share from it.
        self._credit = max(self._credit, -SHARE * TYPICAL_TOKENS)

    def expect_reading(self, seconds: float | None) -> None:
        """`seconds` is the estimated cost of reading a token of context; None: as measured or assumed."""
        self._read_token_seconds = seconds

    def situation(self, round: Situation) -> Situation:
        """`round` with all that is known here."""
        round = replace(round, deepest=self._max_k, rate=self.acceptance.rate)
        if round.k is not None and round.others is None:
            return round
        return replace(
            round,
            # A pass of 32 rows may take a second: what half as many take tells first.
            lookup=round.lookup[: 2 * max(self.costs.most_rows - 1, 1)],
            judged=self.acceptance.judged > 0,
            steps=self.costs.round_steps(),
            passes=self.costs.pass_steps() if round.lookup or round.first or round.others is not None else (),
            measured=self.costs.rows_measured,
            reading=self._reading(),
            unread=int(min(self._unread, self._most_unread)),
            credit=self._credit,
            stale=self.costs.plain_is_stale and not round.in_flight,
            left=self._left - round.in_flight,
            emitted=self._emitted + round.in_flight,
            idle=self._idle,
        )

    def _reading(self) -> float:
        """Plain steps until the draft has read what it missed."""
        plain, token = self.costs.plain_seconds(), self.costs.read_steps()
        if self._read_token_seconds is not None and not self.costs.read_measured:
            token = self._read_token_seconds / plain
        return min(self._unread, self._most_unread) * token + self._released * self._reload_seconds / plain

    def follow(self, plan: Plan) -> None:
        """`plan` is carried out."""
        if plan.release:  # the draft gives its memory back, and will have to read everything again
            self._released, self._unread = True, self._context

    def observe(self, round: Round, queued: bool = False, followed: bool = False) -> None:
        """Learn the cost and the acceptance of one round.

        `queued`: it was launched before its predecessor was read; `followed`: so was its successor.
        """
        emitted, k = len(round.emitted), len(round.draft)
        self._left, self._emitted = self._left - emitted, self._emitted + emitted
        self._context += emitted
        self._pay(SHARE * emitted)
        self.costs.count_tokens(emitted)
        alone = round.batch_size <= 1  # the time of a pass that replies share is no round's of their own
        if learns_from(round.drafter):
            if alone:
                self._observe_drafted(round)
            self._released, self._unread, self._idle = False, 0, 0
            self.acceptance.observe(k, round.accepted)
            return
        self._unread += emitted
        self._idle += emitted * self._chooses
        if self._idle - emitted < FORGET_TOKENS <= self._idle:
            self.costs.forget()
        if alone and k:  # a lookup has no cost of its own: all its time is the pass's
            self.costs.observe_drafted(k, None, round.draft_seconds + round.verify_seconds)
        elif alone:
            self.costs.observe_plain(round.verify_seconds, queued, followed)

    def _pay(self, steps: float) -> None:
        least = min(self._credit, -3 * MOST_CREDIT)
        self._credit = max(min(self._credit + steps * self._chooses, MOST_CREDIT), least)

    def _observe_drafted(self, round: Round) -> None:
        k, read_seconds = len(round.draft), round.draft_prefill_seconds
        unread = max(int(min(self._unread, self._most_unread)), round.draft_read_tokens)
        caught_up = unread > 0 and not read_seconds
        if caught_up and self.costs.plain_measured:
            read_seconds = round.draft_seconds - self.costs.draft_seconds(k)
        if not self._released:
            self.costs.observe_reading(unread, read_seconds)
        self.costs.observe_drafted(k, None if caught_up else round.draft_seconds, round.verify_seconds)
        plain = self.costs.plain_seconds()
        self._pay(len(round.emitted) - (round.draft_seconds + round.verify_seconds) / plain)
        self._credit -= round.draft_prefill_seconds / plain * self._chooses

    def to_dict(self, now_seconds: float) -> dict[str, Any]:
        """Costs and acceptance for a later process to start from; `now_seconds` since the epoch."""
        return {
            "at": now_seconds,
            "costs": self.costs.to_dict(),
            "judged": self.acceptance.all_judged,
            "accepted": self.acceptance.all_accepted,
            "credit": self._credit,
        }
