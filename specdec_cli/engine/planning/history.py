"""What the rounds of a pair have shown, kept from reply to reply, and the situation of the next round (pure).

Law: rounds change it, plans do not, but for the spell that a plan begins or ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from specdec_cli.core.events import Round
from specdec_cli.core.kinds import PREDICTED, learns_from
from specdec_cli.core.request import MAX_DRAFT, MAX_K
from specdec_cli.core.speedup import BELIEVED_SECONDS
from specdec_cli.engine.planning.costs import Costs, RoundCosts
from specdec_cli.engine.planning.policy import Plan, Situation, Spell, cheapest
from specdec_cli.engine.planning.rates import MAX_LOOKUP, SHORTEST_MATCH, Acceptance
from specdec_cli.engine.planning.tuning import HOPE

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
        if round.drafter != PREDICTED.name:
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
    """Costs, acceptance and spells of one pair and length of context. One serves every reply; `begin` starts each."""

    def __init__(self, assumed: Costs | None = None, max_k: int = MAX_K, reload_seconds: float = 0.0) -> None:
        """`max_k` 0: there is no draft. `reload_seconds` is the time a released draft takes to be ready again."""
        self.costs, self.acceptance, self.spell = RoundCosts(assumed or Costs()), Acceptance(), Spell()
        self._max_k, self._reload_seconds = max_k, reload_seconds
        self._left, self._emitted, self.tokens = inf, 0, 0
        # Context that the draft has not read; the most that it ever reads at once, and an estimate for a token of it.
        self._unread, self._context, self._most_unread = 0, 0, inf
        self._read_token_seconds: float | None = None
        self._released = False

    def begin(
        self, left: int, unread_tokens: int = 0, most_unread: float = inf, context_tokens: int | None = None
    ) -> None:
        """Start a reply: tokens it may have, context the draft has not read, of all that there is.

        `most_unread`: what a draft ever has to read at once, if it keeps up with plain rounds or reads the end alone.
        """
        self._left, self._emitted, self._most_unread = left, 0, most_unread
        self._unread, self._context = unread_tokens, unread_tokens if context_tokens is None else context_tokens
        self.expect_reading(None)
        # Another text: it is tried soon, whatever became of the one before.
        self.spell = replace(self.spell, plain=0, fails=min(self.spell.fails, 1))

    def expect_reading(self, seconds: float | None) -> None:
        """`seconds` is the estimated cost of reading a token of context; None: as measured or assumed."""
        self._read_token_seconds = seconds

    def situation(self, round: Situation, in_flight: int = 0) -> Situation:
        """`round` with all that is known here, after `in_flight` tokens that were not observed yet.

        It may be as deep as rounds now reach: twice what was judged; one more where nothing is known of the machine.
        """
        if round.k is not None or round.shared:
            return replace(round, rates=tuple(self.acceptance.rates(self._max_k)), spell=self.spell)
        known, frontier = self.costs.shape_known, self.acceptance.frontier
        reach = min(self._max_k, 2 * frontier + 2 if known else frontier + 1)
        hope = HOPE * self.spell.left / self.spell.budget if self.spell.budget else 0.0
        looked_up = MAX_DRAFT if known else 2 * max(self.costs.most_rows - 1, 1)
        return replace(
            round,
            lookup=round.lookup[:looked_up],
            rates=tuple(self.acceptance.rates(reach)) if self._max_k else (),
            hoped=tuple(self.acceptance.rates(reach, hope)) if self._max_k else (),
            steps=self.costs.round_steps()[: self._max_k + 1],
            passes=self.costs.pass_steps() if round.lookup or round.first else (),
            reading=self._reading(),
            unread=int(min(self._unread, self._most_unread)),
            ready=self.costs.ready,
            tried=self.costs.rows_measured,
            doubt=self.costs.assumed.doubt,
            left=self._left - in_flight,
            emitted=self._emitted + in_flight,
            tokens=self.tokens + in_flight,
            spell=self.spell,
        )

    def price(self) -> float:
        """Plain steps a token of a reply that has its passes to itself."""
        if not self._max_k or not (self.spell.drafts or self.spell.since == inf):
            return 1.0
        return min(cheapest(self.costs.round_steps(), self.acceptance.rates(self._max_k)).price, 1.0)

    def _reading(self) -> float:
        """Plain steps until the draft has read what it missed."""
        plain, token = self.costs.plain_seconds(), self.costs.read_steps()
        if self._read_token_seconds is not None and not self.costs.read_measured:
            token = self._read_token_seconds / plain
        return min(self._unread, self._most_unread) * token + self._released * self._reload_seconds / plain

    def follow(self, plan: Plan) -> None:
        """`plan` is carried out."""
        self.spell = plan.spell or self.spell
        if plan.release:  # the draft gives its memory back, and will have to read everything again
            self._released, self._unread = True, self._context

    def observe(self, round: Round, queued: bool = False, followed: bool = False) -> None:
        """Learn the cost and the acceptance of one round.

        `queued`: it was launched before the one before it was read. `followed`: so was the one after it. Only a plain
        round that is both took a plain step's time.
        """
        emitted, k = len(round.emitted), len(round.draft)
        self._left, self._emitted = self._left - emitted, self._emitted + emitted
        self.tokens, self._context = self.tokens + emitted, self._context + emitted
        if learns_from(round.drafter):
            self._observe_drafted(round)
            return
        self._unread += emitted
        self.spell = self.spell.decoded(emitted)
        if k:  # a lookup has no cost of its own: all its time is the pass's
            self.costs.observe_drafted(k, None, round.draft_seconds + round.verify_seconds)
        elif not queued:
            self.costs.observe_start(round.verify_seconds)
        elif followed:
            self.costs.observe_plain(round.verify_seconds)

    def _observe_drafted(self, round: Round) -> None:
        k, read_seconds = len(round.draft), round.draft_prefill_seconds
        unread = max(int(min(self._unread, self._most_unread)), round.draft_read_tokens)
        caught_up = unread > 0 and not read_seconds
        if caught_up and self.costs.ready:
            read_seconds = round.draft_seconds - self.costs.draft_seconds(k)
        if not self._released:
            self.costs.observe_reading(unread, read_seconds)
        self._released, self._unread = False, 0
        first, expected = self.costs.is_first(k), self.costs.round_steps()[k]
        self.costs.observe_drafted(k, None if caught_up else round.draft_seconds, round.verify_seconds)
        self.acceptance.observe(k, round.accepted)
        steps = (round.draft_seconds + round.verify_seconds) / self.costs.plain_seconds()
        self.spell = self.spell.drafted(min(steps, expected) if first else steps, len(round.emitted))

    def to_dict(self, now_seconds: float) -> dict[str, Any]:
        """Costs, acceptance and spells for a later process to start from; `now_seconds` since the epoch."""
        spell = self.spell
        return {
            "at": now_seconds,
            "costs": self.costs.to_dict(),
            "judged": self.acceptance.all_judged,
            "accepted": self.acceptance.all_accepted,
            "tokens": self.tokens,
            "since": None if spell.drafts or spell.since == inf else spell.since,
            "fails": spell.fails,
        }

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], now_seconds: float, max_k: int = MAX_K, reload_seconds: float = 0.0
    ) -> History | None:
        """One that assumes what `to_dict` wrote; None when that is too old. Raises KeyError, TypeError and ValueError
        for anything else."""
        if not 0 <= now_seconds - float(values["at"]) <= BELIEVED_SECONDS:
            return None
        history = cls(Costs.from_dict(values["costs"]), max_k, reload_seconds)
        judged, accepted, tokens, fails = (float(values[name]) for name in ("judged", "accepted", "tokens", "fails"))
        history.acceptance, history.tokens = Acceptance(judged, accepted), int(tokens)
        if values["since"] is not None:
            since = float(values["since"])
            pays = max_k and cheapest(history.costs.round_steps(), history.acceptance.rates(max_k)).price < 1
            history.spell = Spell() if pays else Spell(since=since, fails=int(fails))
        return history
