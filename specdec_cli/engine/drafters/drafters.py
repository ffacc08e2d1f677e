"""The drafters of one reply, and whose turn it is: each round is planned, proposed, and learned from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from specdec_cli.core.events import Round
from specdec_cli.core.kinds import FORCED, LOOKUP, NONE, PREDICTED, K
from specdec_cli.core.request import MAX_DRAFT
from specdec_cli.engine import device
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter, Proposal
from specdec_cli.engine.drafters.lookup import ForcedDrafter, LookupDrafter
from specdec_cli.engine.drafters.stepwise import HeadDrafter, ModelDrafter
from specdec_cli.engine.planning.history import History, PredictionLength
from specdec_cli.engine.planning.policy import Plan, Planner, Situation, Worth, plan
from specdec_cli.engine.sampling.sampler import TokenMask


class Drafters:
    """Those of one reply: a network or a drafter like it, lookups, and what a constraint forces."""

    def __init__(
        self,
        drafter: Drafter | None = None,
        k: K = "auto",
        lookup: LookupDrafter | None = None,
        constraint: TokenMask | None = None,
        history: History | None = None,
    ) -> None:
        """`drafter` proposes as `history` and the `planner` say, or always `k` tokens."""
        self.drafter, self.k = drafter, None if k == "auto" else k
        self.history = history or History(max_k=self.k or 0)
        self._lookup, self._constraint = lookup, constraint
        # A fixed K holds for predictions too.
        self._predictions = PredictionLength() if lookup and self.k is None else None
        self._by_name: dict[str, Drafter] = {NONE.name: Drafter()}
        if drafter is not None:
            self._by_name[drafter.name] = drafter
        if lookup is not None:
            self._by_name |= {LOOKUP.name: lookup, PREDICTED.name: lookup}
        if constraint is not None:
            self._by_name[FORCED.name] = ForcedDrafter(constraint)
        self.plan = Plan()
        # Whether the draft model's steps run with those of other replies, where these share the target's passes.
        self.shares_steps = False
        self.planner: Planner = plan

    def keeps(self, context: Sequence[int]) -> int:
        """Before the target reads `context`: the leading positions whose hidden states are not needed again."""
        return self.drafter.keeps(context) if isinstance(self.drafter, HeadDrafter) else len(context)

    def is_ready(self, context: Sequence[int]) -> bool:
        """Whether its network can draft for `context` without a pass of the target's own."""
        return not isinstance(self.drafter, HeadDrafter) or self.drafter.follows(context)

    def situation(
        self, left: int, first: bool = False, in_flight: int = 0, others: Sequence[Worth] | None = None
    ) -> Situation:
        """Of the next round, where `left` tokens may be emitted and `in_flight` of them are not known yet.

        A token in flight may force others, so what is forced behind it is taken for one token. `others` share the pass.
        """
        offer = self._lookup.offer(in_flight) if self._lookup else None
        forced = len(self._constraint.forced()) if self._constraint and not in_flight else 0
        predicted = 0
        if offer and self._predictions and offer.source == PREDICTED.name:
            predicted = self._predictions.k_of(offer.match)
        asked = Situation(
            most=max(min(left - 1 - in_flight, MAX_DRAFT), 0),
            k=self.k,
            first=first,
            in_flight=in_flight,
            others=None if others is None else tuple(others),
            shares_steps=self.shares_steps and isinstance(self.drafter, ModelDrafter),
            forced=1 if self._constraint and in_flight else forced,
            source=offer.source if offer else "",
            lookup=offer.rates if offer else (),
            match=offer.match if offer else 0,
            predicted=predicted,
            network=self.drafter.name if self.drafter else "",
        )
        return self.history.situation(asked)

    def decide(self, left: int, first: bool = False, in_flight: int = 0, others: Sequence[Worth] | None = None) -> Plan:
        """The plan in such a situation, which `follow` carries out."""
        return self.planner(self.situation(left, first, in_flight, others))

    def follow(self, plan: Plan) -> Plan:
        """`plan` is carried out."""
        self.history.follow(plan)
        if plan.release:
            for drafter in self._by_name.values():
                drafter.release()
        self.plan = plan
        return plan

    def propose(self, context: Sequence[int]) -> Proposal:
        """The draft that is planned."""
        return self._by_name[self.plan.drafter].propose(context, self.plan.k)

    def leave(self) -> None:
        """The next draft is made alone."""
        if self.drafter is not None:
            self.drafter.leave()

    def legal(self, draft: Draft) -> Draft:
        """`draft` up to its first illegal token; what was drawn from a law was drawn inside the constraint."""
        if self._constraint is None or draft.log_q is not None or draft.drafter == FORCED.name:
            return draft
        return replace(draft, tokens=draft.tokens[: self._constraint.legal(device.to_list(draft.tokens))])

    def commit(self, context: Sequence[int], hidden: mx.array | None) -> None:
        """The round is over: the verified `context`, and the target's states of its newest positions, if exposed."""
        if self.drafter is not None:
            self.drafter.commit(context, hidden)
        if self._lookup is not None:
            self._lookup.commit(context)

    def observe(self, round: Round, queued: bool, followed: bool) -> None:
        """Learn from a finished round (`History.observe`)."""
        self.history.observe(round, queued, followed)
        if self._predictions is not None:
            self._predictions.observe(round, self.history.costs.plain_seconds())
