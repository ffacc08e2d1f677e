"""Which draft tokens stand. Law: whatever the draft was, the emitted tokens follow the target's own distribution.

A rule also says how the draft draws, because its verdict is right only for drafts drawn that way.
Letters: K drafted tokens, V the target's vocabulary width. A new rule is one class and one line in RULES.
The mathematics, with papers, is in `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from specdec_cli.engine.draft import Draft
from specdec_cli.engine.sampling import rejection as rules
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.sampler import NONE_BEHIND, Sampler
from specdec_cli.engine.sampling.warps import Sampling, adjusted, draw, log_probs


@dataclass(frozen=True, slots=True)
class Verdict:
    """Both scalars stay on the device: how many draft tokens stand, and the target's token behind them."""

    accepted: mx.array
    next: mx.array


@dataclass(frozen=True, slots=True)
class Choice:
    """One token [1] of a draft, and the distribution [1, V] it was drawn from where the rule needs it."""

    token: mx.array
    log_q: mx.array | None = None


class AcceptanceRule(Protocol):
    """Judges the drafts of one reply, and draws them."""

    name: str

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> Choice:
        """The draft's token for `position`; its `logits` [1, V] follow the context and the tokens `ahead`."""

    def judge(self, draft: Draft, logits: mx.array, position: int, behind: mx.array = NONE_BEHIND) -> Verdict:
        """`logits` [K + 1, V] are the target's after the context and after each draft token; `position` is that of the
        first draft token. `behind` are emitted tokens that were not committed yet."""

    def commit(self, emitted: Sequence[int]) -> None:
        """The round is over: these tokens are said."""


class Greedy:
    """Temperature 0: a draft token stands while it equals the target's argmax; `next` is the first that differs."""

    name = "greedy"

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.commit = sampler.commit

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> Choice:
        scores = adjusted(logits, self._sampler.sampling, self._sampler.after(ahead))
        return Choice(mx.argmax(scores, axis=-1).astype(mx.int32))

    def judge(self, draft: Draft, logits: mx.array, position: int, behind: mx.array = NONE_BEHIND) -> Verdict:
        targets = mx.argmax(self._sampler.adjusted(logits, draft.tokens, behind), axis=-1).astype(mx.int32)
        accepted = rules.common_prefix(draft.tokens, targets)
        return Verdict(accepted, targets[accepted])


class Coupled:
    """Both models draw with the same noise; the text is a function of the seed and the target alone."""

    name = "coupled"

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.commit = sampler.commit

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> Choice:
        log_q = log_probs(logits, self._sampler.sampling, self._sampler.after(ahead))
        return Choice(draw(log_q, self._sampler.target_noise(position, 1)))

    def judge(self, draft: Draft, logits: mx.array, position: int, behind: mx.array = NONE_BEHIND) -> Verdict:
        log_p = self._sampler.log_probs(logits, draft.tokens, behind)
        self._sampler.forget_noise(position)
        return Verdict(*rules.draw_coupled(draft.tokens, log_p, self._sampler.target_noise(position, len(draft) + 1)))


class Match(Coupled):
    """mlx-lm's rule: the draft draws with noise of its own, and stands where it happens to equal the target's draw."""

    name = "match"

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> Choice:
        log_q = log_probs(logits, self._sampler.sampling, self._sampler.after(ahead))
        return Choice(self._sampler.draw_for_draft(log_q))


Plan = Callable[[mx.array, mx.array | None, mx.array], rules.Plan]
Draw = Callable[[rules.Plan, Noise, int], tuple[mx.array, mx.array]]


class Rejection:
    """Speculative sampling: a draft token stands with odds that make up exactly for where it was drawn from."""

    def __init__(self, name: str, plan: Plan, draw: Draw, sampler: Sampler) -> None:
        self.name = name
        self._plan, self._draw, self._sampler = plan, draw, sampler
        self.commit = sampler.commit

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> Choice:
        log_q = log_probs(logits, self._sampler.sampling, self._sampler.after(ahead))
        return Choice(self._sampler.draw_for_draft(log_q), log_q)

    def judge(self, draft: Draft, logits: mx.array, position: int, behind: mx.array = NONE_BEHIND) -> Verdict:
        plan = self._plan(draft.tokens, draft.log_q, self._sampler.log_probs(logits, draft.tokens, behind))
        # A position begins one round only, so its accept and residual noise is used once.
        return Verdict(*self._draw(plan, self._sampler.noise, position))


RULES: dict[str, Callable[[Sampler], AcceptanceRule]] = {
    "token": lambda sampler: Rejection("token", rules.plan_token, rules.draw_token, sampler),
    "block": lambda sampler: Rejection("block", rules.plan_block, rules.draw_block, sampler),
    "coupled": Coupled,
    "match": Match,
}


def make_rule(name: str, sampler: Sampler) -> AcceptanceRule:
    """The rule `name`; at temperature 0 all are the same equality."""
    return Greedy(sampler) if sampler.sampling.greedy else RULES[name](sampler)


def greedy(width: int) -> AcceptanceRule:
    """Plain temperature 0 at the target's width V: no penalties, no bias."""
    return Greedy(Sampler(Sampling(), seed=0, prompt=(), width=width))
