"""The loop: propose, verify, accept, commit. Law: one read-back a round, and no work that grows with the context.

Leviathan et al. 2023 (arXiv:2211.17192, Algorithm 1) and Chen et al. 2023 (arXiv:2302.01318, Algorithm 2).
Not in the papers: the first round drafts nothing, so that the first token is out before the draft has read the
prompt; and a plain round (K = 0) queues the next plain pass on its unread token before reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.acceptance import NOTHING, AcceptanceRule, Draft, Verdict
from specdec_cli.engine.draft_length import DraftLength
from specdec_cli.engine.drafters import Drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.events import Round

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Pass:
    """One target pass queued on the device; `packed` is draft tokens, accepted, next: the round's one read-back."""

    draft: Draft
    verdict: Verdict
    packed: mx.array

    @classmethod
    def queue(cls, draft: Draft, verdict: Verdict) -> Pass:
        scalars = mx.stack([verdict.accepted, verdict.next])
        packed = mx.concatenate([draft.tokens, scalars]) if len(draft) else scalars
        # A CPU stream makes the caller wait once a few tasks are queued: queuing the verification there would bill it
        # to the draft, and gain nothing.
        if not len(draft) or device.queues_ahead():
            mx.async_eval(packed)
        return cls(draft, verdict, packed)

    def read(self, since: float, clock: Clock) -> tuple[list[int], float, float]:
        """`packed` as ints, draft seconds, verify seconds. Waiting for the draft first costs nothing: all is queued."""
        drafted = since
        if len(self.draft):
            mx.eval(self.draft.tokens)
            drafted = clock()
        values: list[int] = self.packed.tolist()  # type: ignore[assignment]
        return values, drafted - since, clock() - drafted


def decode(
    target: CachedModel,
    drafter: Drafter,
    rule: AcceptanceRule,
    length: DraftLength,
    context: list[int],
    max_tokens: int,
    stop_tokens: frozenset[int],
    clock: Clock,
    cancelled: Callable[[], bool] = lambda: False,
) -> Generator[Round]:
    """Rounds until a stop token, `max_tokens` or `cancelled()`; `context` grows in place by what each round emitted.

    Whenever the iterator is closed or exhausted, the target's memo holds `context` less its last token.
    """
    index, k, left, queued, prefilled, since = 0, 0, max_tokens, None, False, clock()
    try:
        while left and not cancelled():
            prefill_seconds = 0.0
            if queued is None:
                started = since = clock()
                if k and not prefilled:
                    if any(cancelled() for _ in drafter.prefill(context)):
                        return
                    prefilled, since = True, clock()
                    prefill_seconds = since - started
                draft = drafter.propose(context, k) if k else NOTHING
                logits = target.logits(context, draft.tokens)
                queued = Pass.queue(draft, rule.judge(draft, logits, len(context)))
            current, queued = queued, None
            if not len(current.draft):
                k = max(min(length.next(), left - 2), 0)
                if k == 0 and left > 1:
                    token = current.verdict.next[None]
                    verdict = rule.judge(NOTHING, target.extend(token), len(context) + 1, token)
                    queued = Pass.queue(NOTHING, verdict)
            (*tokens, accepted, next_token), draft_seconds, verify_seconds = current.read(since, clock)
            since = clock()
            emitted = cut_after_stop([*tokens[:accepted], next_token], stop_tokens)
            context += emitted
            left -= len(emitted)
            target.commit(context, len(context) - (queued is None))
            drafter.commit(context)
            rule.commit(emitted)
            round = Round(
                index=index,
                drafter=drafter.name if tokens else "none",
                draft=tuple(tokens),
                accepted=accepted,
                next=next_token,
                emitted=tuple(emitted),
                draft_seconds=draft_seconds,
                verify_seconds=verify_seconds,
                draft_prefill_seconds=prefill_seconds,
            )
            length.observe(round)
            yield round
            if emitted[-1] in stop_tokens:
                return
            if tokens:
                k = max(min(length.next(), left - 1), 0)
            index += 1
    finally:
        target.commit(context, len(context) - 1)


def cut_after_stop(tokens: list[int], stop_tokens: frozenset[int]) -> list[int]:
    """`tokens` up to and including the first stop token."""
    for i, token in enumerate(tokens):
        if token in stop_tokens:
            return tokens[: i + 1]
    return tokens
