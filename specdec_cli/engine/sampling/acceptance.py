"""Which draft tokens are accepted. Law: whatever the draft was, the emitted tokens follow the target's distribution.

A rule also says how the draft draws, because its verdict is right only for drafts drawn that way.
Letters: K drafted tokens, V the target's vocabulary size. A new rule is one class and one line of `kinds.RULES`.
The mathematics, with papers, is in `rejection`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import mlx.core as mx

from specdec_cli.core.events import TokenLogprob
from specdec_cli.core.kinds import effective_rule, import_named
from specdec_cli.engine.draft import NO_TOKENS, Draft
from specdec_cli.engine.sampling import rejection
from specdec_cli.engine.sampling.cuts import top_tokens
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling, best_tokens, draw


@dataclass(frozen=True, slots=True)
class Verdict:
    """Two scalars that stay on the device: how many draft tokens are accepted, and the target's token after them."""

    accepted: mx.array
    next: mx.array


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One token [1] of a draft, and the distribution [1, V] it was drawn from where the rule needs it."""

    token: mx.array
    log_q: mx.array | None = None


class AcceptanceRule(Protocol):
    """Judges the drafts of one reply, and draws them."""

    name: str

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> DraftToken:
        """The draft's token for `position`; its `logits` [1, V] follow the context and the tokens `ahead`."""

    def judge(self, draft: Draft, logits: mx.array, position: int, uncommitted: mx.array = NO_TOKENS) -> Verdict:
        """`logits` [K + 1, V] are the target's after the context and after each draft token; `position` is that of the
        first draft token. `uncommitted` are emitted tokens that were not committed yet."""

    def commit(self, emitted: Sequence[int]) -> None:
        """The round is over: these tokens are emitted."""


class _Drawing:
    """A rule over a `sampler`, which counts what was emitted."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.commit = sampler.commit


class Greedy(_Drawing):
    """Temperature 0: a draft token is accepted while it equals the target's argmax; `next` is the first other one."""

    name = "greedy"

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> DraftToken:
        return DraftToken(best_tokens(self._sampler.for_draft(logits, ahead)))

    def judge(self, draft: Draft, logits: mx.array, position: int, uncommitted: mx.array = NO_TOKENS) -> Verdict:
        scores = self._sampler.for_target(logits, draft.tokens, uncommitted)
        return Verdict(*rejection.accept_equal(draft.tokens, best_tokens(scores)))


class Coupled(_Drawing):
    """Both models draw with the same noise; the text is a function of the seed and the target alone."""

    name = "coupled"

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> DraftToken:
        return DraftToken(draw(self._sampler.for_draft(logits, ahead), self._sampler.target_noise(position, 1)))

    def judge(self, draft: Draft, logits: mx.array, position: int, uncommitted: mx.array = NO_TOKENS) -> Verdict:
        log_p = self._sampler.for_target(logits, draft.tokens, uncommitted)
        self._sampler.forget_noise(position)
        noise = self._sampler.target_noise(position, len(draft) + 1)
        return Verdict(*rejection.draw_coupled(draft.tokens, log_p, noise))


class Match(Coupled):
    """mlx-lm's rule: the draft draws with noise of its own; a token is accepted if it equals the target's draw."""

    name = "match"

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> DraftToken:
        return DraftToken(self._sampler.draw_for_draft(self._sampler.for_draft(logits, ahead)))


Plan = Callable[[mx.array, mx.array | None, mx.array], rejection.RejectionOdds]
Draw = Callable[[rejection.RejectionOdds, Noise, int], tuple[mx.array, mx.array]]


class Rejection(_Drawing):
    """Speculative sampling: a draft token is accepted with odds that make up for the distribution it was drawn from."""

    def __init__(self, name: str, plan: Plan, draw: Draw, sampler: Sampler) -> None:
        super().__init__(sampler)
        self.name, self._plan, self._draw = name, plan, draw

    def choose(self, logits: mx.array, position: int, ahead: Sequence[mx.array]) -> DraftToken:
        log_q = self._sampler.for_draft(logits, ahead)
        return DraftToken(self._sampler.draw_for_draft(log_q), log_q)

    def judge(self, draft: Draft, logits: mx.array, position: int, uncommitted: mx.array = NO_TOKENS) -> Verdict:
        plan = self._plan(draft.tokens, draft.log_q, self._sampler.for_target(logits, draft.tokens, uncommitted))
        # A position begins one round only, so its accept and residual noise is used once.
        return Verdict(*self._draw(plan, self._sampler.noise, position))


def token(sampler: Sampler) -> Rejection:
    """Token by token (Leviathan et al. 2023, arXiv:2211.17192)."""
    return Rejection("token", rejection.plan_token, rejection.draw_token, sampler)


def block(sampler: Sampler) -> Rejection:
    """The longest block that passes its own test (Sun et al. 2024, arXiv:2403.10444)."""
    return Rejection("block", rejection.plan_block, rejection.draw_block, sampler)


def make_rule(name: str, sampler: Sampler) -> AcceptanceRule:
    """The rule `name`; at temperature 0 all are the same equality."""
    rule: AcceptanceRule = import_named(effective_rule(name, None, sampler.sampling.temperature).make)(sampler)
    return rule


def greedy(vocab_size: int) -> AcceptanceRule:
    """Plain temperature 0 at the target's V: no penalties, no bias."""
    return Greedy(Sampler(Sampling(), seed=0, prompt=(), vocab_size=vocab_size))


@dataclass(frozen=True, slots=True, eq=False)
class Logprobs:
    """Of the K + 1 places of a pass, on the device: the emitted token's [K + 1], and the N best ids and values.

    Law: they are the target's own log-probabilities, before any sampling setting.
    """

    chosen: mx.array
    top_ids: mx.array
    top_values: mx.array

    def read(self, emitted: tuple[int, ...]) -> tuple[TokenLogprob, ...]:
        """One for each emitted token; waits for the device."""
        # mlx types every nesting that `tolist` may give.
        chosen = cast(list[float], self.chosen.tolist())
        ids, values = cast(list[list[int]], self.top_ids.tolist()), cast(list[list[float]], self.top_values.tolist())
        return tuple(
            TokenLogprob(token, chosen[i], tuple(zip(ids[i], values[i], strict=True)))
            for i, token in enumerate(emitted)
        )


def logprobs(logits: mx.array, draft_tokens: mx.array, verdict: Verdict, top: int) -> Logprobs:
    """Of `logits` [K + 1, V]: place i holds draft token i, but `verdict.next` where the draft was not accepted."""
    logits = logits.astype(mx.float32)
    log_p = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    places = mx.arange(log_p.shape[0])
    drafted = mx.concatenate([draft_tokens.astype(mx.int32), verdict.next[None].astype(mx.int32)])
    emitted = mx.where(places == verdict.accepted, verdict.next, drafted)
    chosen = mx.take_along_axis(log_p, emitted[:, None], axis=-1)[:, 0]
    best = top_tokens(log_p, top)
    return Logprobs(chosen, best, mx.take_along_axis(log_p, best, axis=-1))
