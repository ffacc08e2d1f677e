"""The loop: propose, verify, accept, commit. Law: one read-back a round, and no work that grows with the context.

Leviathan et al. 2023 (arXiv:2211.17192, Algorithm 1) and Chen et al. 2023 (arXiv:2302.01318, Algorithm 2).
Not in the papers: the first round drafts nothing, so that the first token is out before the draft has read the
prompt; a plain round (K = 0) queues the next plain pass on its unread token before reading it; and any other round
queues its successor before it is handed on, so that the device works while its consumer writes and draws.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.device import ids
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.fixed import DraftLength
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, Verdict
from specdec_cli.events import Round

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Pass:
    """One target pass queued on the device; `packed` is draft tokens, accepted, next: the round's one read-back.

    `why` is the reason of its K; `draft_prefill_seconds` what reading the prompt took, once.
    """

    draft: Draft
    verdict: Verdict
    packed: mx.array
    why: str
    draft_prefill_seconds: float

    @classmethod
    def queue(cls, draft: Draft, verdict: Verdict, why: str, draft_prefill_seconds: float = 0.0) -> Pass:
        scalars = mx.stack([verdict.accepted, verdict.next])
        packed = mx.concatenate([draft.tokens, scalars]) if len(draft) else scalars
        # A CPU stream makes the caller wait once a few tasks are queued: queuing the verification there would bill it
        # to the draft, and gain nothing.
        if not len(draft) or device.queues_ahead():
            mx.async_eval(packed)
        return cls(draft, verdict, packed, why, draft_prefill_seconds)

    def read(self, index: int, since: float, clock: Clock, stop_tokens: frozenset[int]) -> Round:
        """The round. Its seconds run from `since`. Waiting for the draft first costs nothing: all is queued."""
        since += self.draft_prefill_seconds
        drafted = since
        if len(self.draft):
            mx.eval(self.draft.tokens)
            drafted = clock()
        *tokens, accepted, next_token = ids(self.packed)
        return Round(
            index=index,
            drafter=self.draft.drafter,
            draft=tuple(tokens),
            accepted=accepted,
            next=next_token,
            emitted=tuple(cut_after_stop([*tokens[:accepted], next_token], stop_tokens)),
            draft_seconds=drafted - since,
            verify_seconds=clock() - drafted,
            draft_prefill_seconds=self.draft_prefill_seconds,
            why=self.why,
        )


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

    The rounds' seconds, that of the draft's reading included, add up to the time since the call, but for what the
    consumer takes after the last one. Whenever the iterator is closed or exhausted, the target's memo holds `context`
    less its last token.
    """
    index, k, left, queued, prefilled, since = 0, 0, max_tokens, None, False, clock()

    def start(prefill_seconds: float = 0.0) -> Pass:
        draft = drafter.propose(context, k) if k else NOTHING
        logits = target.logits(context, draft.tokens)
        return Pass.queue(draft, rule.judge(draft, logits, len(context)), length.why, prefill_seconds)

    try:
        while left and not cancelled():
            if queued is None:
                prefill_seconds = 0.0
                if k and drafter.unread(context):
                    began = clock()
                    if any(cancelled() for _ in drafter.prefill(context)):
                        return
                    prefill_seconds = 0.0 if prefilled else clock() - began
                    prefilled = True
                queued = start(prefill_seconds)
            current, queued = queued, None
            if not len(current.draft):
                k = max(min(length.next(), left - 2), 0)
                if k == 0 and left > 1:
                    token = current.verdict.next[None]
                    verdict = rule.judge(NOTHING, target.extend(token), len(context) + 1, token)
                    queued = Pass.queue(NOTHING, verdict, length.why)
            round = current.read(index, since, clock, stop_tokens)
            since = clock()
            context += round.emitted
            left -= len(round.emitted)
            target.commit(context, len(context) - (queued is None))
            drafter.commit(context)
            rule.commit(round.emitted)
            length.observe(round)
            if round.emitted[-1] in stop_tokens:
                left = 0
            elif round.draft:
                k = max(min(length.next(), left - 1), 0)
            if length.resting:
                drafter.release()
            elif left and queued is None and device.queues_ahead() and not (k and drafter.unread(context)):
                queued = start()
            yield round
            index += 1
    finally:
        target.commit(context, len(context) - 1)


def cut_after_stop(tokens: list[int], stop_tokens: frozenset[int]) -> list[int]:
    """`tokens` up to and including the first stop token."""
    for i, token in enumerate(tokens):
        if token in stop_tokens:
            return tokens[: i + 1]
    return tokens
