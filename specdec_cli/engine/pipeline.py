"""Queueing and timing of the passes of a round. Clocks are read around the pass they are billed to.

`decode` says what a round does; this says when the device is given it. mlx stops the caller of `async_eval` while more
than about ten command buffers are in flight, and a verify pass fills dozens. So a draft is waited for, and its clock
read, before its verification is queued; a round is handed on before more than the first draft step of the next one is
queued. Letters: K drafted tokens, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import mlx.core as mx

from specdec_cli.core.events import Reading, Round
from specdec_cli.engine import device
from specdec_cli.engine.batch import Member, Part
from specdec_cli.engine.device import EMITTED_TOKENS
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.drafters.base import DraftStep, Proposal
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.failure import is_finite, not_finite, witness
from specdec_cli.engine.model import CachedModel, Network, Output
from specdec_cli.engine.planning.policy import Plan
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, Logprobs, Verdict, logprobs

Clock = Callable[[], float]
# To time a draft, the host waits for it, and meanwhile nothing new is queued on a device that runs ahead. So there only
# one round in eight of each K is timed in two parts, and the others are split in the same proportion. Rounds after full
# acceptance are counted apart, because their draft feeds one token more.
TIMED_EVERY = 8


class Proposed:
    """The next round's draft in the making, as planned. `shares`: its `steps` are asked for, else each runs at once."""

    def __init__(self, plan: Plan, proposal: Proposal, shares: bool = False) -> None:
        self.plan, self.read_tokens, self.prefill_seconds = plan, 0, 0.0
        self._proposal, self._shares = proposal, shares
        self._asks: DraftStep | None = None
        self._draft: Draft | None = None
        self._first: int | None = None
        self.begun = False

    def begin(self) -> int | None:
        """Its first step, taken once: the position from which the context is still to be read, None if little is."""
        if not self.begun:
            self.begun, self._first = True, self.advance()
        return self._first

    def advance(self) -> int | None:
        """One step further: the position read of the context; None where nothing is left to read."""
        self._asks = None
        try:
            while isinstance(step := next(self._proposal), DraftStep):
                if self._shares:
                    self._asks = step
                    return None
            return step
        except StopIteration as end:
            self._draft = end.value
            return None

    def steps(self) -> Iterator[DraftStep]:
        """Those that it asks for, once the context is read; each runs before the next one is asked for."""
        self.begin()
        while self._draft is None:
            if self._asks:
                yield self._asks
            self.advance()

    def finish(self) -> Draft:
        """All of it, queued; what nobody else ran runs now."""
        while self._draft is None:
            self.advance()
        return self._draft


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One target pass in flight; `packed` is the round's one read-back (`read_back`).

    `queued`: launched before its predecessor was read, or by the batch: `batch_size` replies share it. `read_tokens` of
    the context were read by the draft before it, which took `prefill_seconds` if nothing was read before. `drafted_at`
    is the clock when the draft was done, None where it was not waited for. `reason` is that of K.
    """

    draft: Draft
    packed: mx.array
    next: mx.array
    hidden: mx.array | None
    reason: str
    logprobs: Logprobs | None = None
    queued: bool = False
    prefill_seconds: float = 0.0
    read_tokens: int = 0
    drafted_at: float | None = None
    batch_size: int = 1


@dataclass(frozen=True, slots=True)
class Before:
    """The round before: it drafted nothing, or all of it was accepted. `settled`: the device's count at its end."""

    plain: bool = True
    full: bool = False
    settled: int = 0


class Pipeline:
    """The device's work over one reply. `context` grows in place by what each round emitted.

    On leaving, the target's memo holds `context` less its last token.
    """

    def __init__(
        self,
        target: CachedModel,
        drafters: Drafters,
        rule: AcceptanceRule,
        context: list[int],
        clock: Clock,
        cancelled: Callable[[], bool],
        logprobs: int | None = None,
        member: Member | None = None,
    ) -> None:
        """`logprobs`: how many of the best tokens each emitted token's log-probability comes with; None: neither.

        `member`: where a plan says so, passes are shared with other replies.
        """
        self._target, self._drafters, self._rule, self._context = target, drafters, rule, context
        self._clock, self._cancelled, self._logprobs = clock, cancelled, logprobs
        self._member, self.shared = member, False
        if member is not None:
            drafters.shares_steps = member.batch.drafts is not None
        self._since = clock()
        self._next: Proposed | None = None
        self._pass: Pass | None = None
        self._successor: Pass | None = None
        self._prefilled = False
        self._before = Before(settled=device.times_settled())
        self._hidden: mx.array | None = None
        self._draft_shares: dict[tuple[int, bool], float] = {}
        self._rounds_of: dict[tuple[int, bool], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shared:
            self._leave()
        self._target.commit(self._context, len(self._context) - 1)

    def _leave(self) -> None:
        """Go on alone."""
        try:
            self._drafters.leave()
        finally:
            self._target.leave(self._context, len(self._context) - 1)

    def propose(self, left: int, first: bool = False) -> None:
        """Plan the next round of a reply that may emit `left` tokens; nothing of it is queued yet."""
        plan = self._drafters.follow(self._planned(left, first))
        if plan.shared and not self.shared and self._member is not None:
            self._target.catch_up(self._context)
            self._target.join(self._member)
        elif self.shared and not plan.shared:
            self._leave()
        self.shared = plan.shared
        shares_steps = plan.shared and self._member is not None and self._member.batch.drafts is not None
        self._next = Proposed(plan, self._drafters.propose(self._context), shares_steps)

    def reconsider(self, left: int) -> None:
        """Plan the next round anew, if it is to be shared now, was not, and nothing of it has begun."""
        if self._sharing and self._next is not None and not (self.shared or self._next.begun):
            self.propose(left)

    @property
    def _sharing(self) -> Member | None:
        """The member of a batch that is to share the next pass, None where the reply has it to itself.

        That it has where nothing was read: a recurrent state is not there yet, which is no zero to every layer.
        """
        return self._member if self._member and self._member.shares and len(self._context) > 1 else None

    def _planned(self, left: int, first: bool) -> Plan:
        if (member := self._sharing) is None:
            return self._drafters.decide(left, first)
        drafts = member.batch.takes_drafts and self._drafters.is_ready(self._context)
        return member.follow(self._drafters.decide(left if drafts else 1, first, others=member.others))

    def start(self) -> None:
        """Start the next draft while the caller prints, on devices that run ahead of the host."""
        if self._next is not None and device.queues_ahead():
            self._next.begin()

    def read_ahead(self) -> Iterator[Reading]:
        """The draft reads the context, if it must before it drafts; an event between two chunks.

        Only the first reading is counted apart from the round's own time.
        """
        proposed = self._next
        if proposed is None or not proposed.plan.k or self._cancelled():
            return
        began = ended = self._clock()
        tokens, first = len(self._context), proposed.begin()
        before = first
        while before is not None:
            if self._cancelled():
                return
            read = proposed.advance()
            if read is None:
                break
            proposed.read_tokens += read - before
            if read < tokens - 1:
                yield Reading("draft", read, tokens)
            before, ended = read, self._clock()
        if first is not None:
            proposed.prefill_seconds = 0.0 if self._prefilled else ended - began
            self._prefilled = True

    def ask(self, ends: bool) -> Iterator[DraftStep | Part]:
        """The steps of its draft, then its part of the next shared pass: that draft behind the last token.

        `ends`: see `Part`. Where it is gone on with before a step ran, nobody waits for it any more.
        """
        assert self._member is not None and self._next is not None
        for step in self._next.steps():
            yield step
            if step.logits is None:
                return
        proposed, draft = self._drafted()

        def judge(output: Output, sharers: int) -> mx.array:
            done = self._judge(proposed, draft, output, None)
            # Its time is no plain step's, as little as that of a pass that was queued ahead.
            self._pass = replace(done, queued=True, batch_size=sharers)
            return done.next[None]

        last = self._target.ids(self._context[-1:])
        tokens = mx.concatenate([last, draft.tokens]) if len(draft) else last
        yield Part(self._member, tokens, judge, ends)

    def launch(self) -> None:
        """Draft, verify and judge what is proposed; nothing is read back. A pass in flight already is kept."""
        if self._pass is None:
            proposed, draft = self._drafted()
            output = self._target.outputs(self._context, draft.tokens)
            # Before the verdict: where masks are computed, it queues the pass.
            self._pass = self._judge(proposed, draft, output, self._wait_for(draft, proposed))

    def _drafted(self) -> tuple[Proposed, Draft]:
        """What is proposed, and its draft, queued."""
        assert self._next is not None
        proposed, self._next = self._next, None
        draft = proposed.finish()
        if len(draft):
            draft = self._drafters.legal(replace(draft, tokens=self._target.network.agreed(draft.tokens)))
        return proposed, draft

    def _judge(self, proposed: Proposed, draft: Draft, output: Output, drafted_at: float | None) -> Pass:
        verdict = self._rule.judge(draft, output.logits, len(self._context))
        return replace(
            self._queue(draft, output, verdict, proposed.plan.reason),
            prefill_seconds=proposed.prefill_seconds,
            read_tokens=proposed.read_tokens,
            drafted_at=drafted_at,
        )

    @property
    def in_flight(self) -> bool:
        """Whether a pass is to be read."""
        return self._pass is not None

    def look_ahead(self, left: int) -> bool:
        """Queue the next pass on the token of the one in flight, which is not read yet, if both are plain.

        Returns whether that was so.
        """
        assert self._pass is not None
        if len(self._pass.draft) or left == 1 or self.shared or self._sharing:
            return False
        plan = self._drafters.decide(left, in_flight=1)
        if plan.k:
            return False
        self._drafters.follow(plan)
        token = self._pass.next[None]
        output = self._target.forward(token)
        verdict = self._rule.judge(NOTHING, output.logits, len(self._context) + 1, token)
        self._successor = replace(self._queue(NOTHING, output, verdict, plan.reason), queued=True)
        return True

    def read(self, index: int, stop_tokens: frozenset[int]) -> tuple[Round, bool]:
        """(the round in flight, whether it was queued ahead): its one read-back.

        Its seconds run from the end of the round before. Raises: NotFinite for a model that computes no numbers.
        """
        assert self._pass is not None
        done, self._pass, self._successor = self._pass, self._successor, None
        *tokens, scores, accepted, next_token = device.to_list(done.packed)
        if not is_finite(scores):
            raise not_finite(self._target.name, done.draft.log_q)
        since, now = self._since + done.prefill_seconds, self._clock()
        draft_seconds = self._draft_seconds(done, since, now)
        self._before = Before(not tokens, 0 < len(tokens) == accepted, device.times_settled())
        self._since, self._hidden = now, done.hidden
        emitted = tuple(cut_after_stop([*tokens[:accepted], next_token], stop_tokens))
        round = Round(
            index=index,
            drafter=done.draft.drafter,
            draft=tuple(tokens),
            accepted=accepted,
            next=next_token,
            emitted=emitted,
            draft_seconds=draft_seconds,
            verify_seconds=now - since - draft_seconds,
            draft_prefill_seconds=done.prefill_seconds,
            why=done.reason,
            draft_read_tokens=done.read_tokens,
            batch_size=done.batch_size,
            logprobs=done.logprobs.read(emitted) if done.logprobs else (),
        )
        return round, done.queued

    def commit(self, round: Round) -> None:
        """Append what `round` emitted, for drafters and penalties; the target waits for `roll_back`."""
        emitted = len(round.emitted)
        self._context += round.emitted
        if self.shared:
            self._target.take_back(len(round.draft) - round.accepted)
        self._drafters.commit(self._context, None if self._hidden is None else self._hidden[:emitted])
        self._rule.commit(round.emitted)
        device.give_back(len(self._context) - emitted, len(self._context), EMITTED_TOKENS)

    def roll_back(self) -> None:
        """The target forgets what was rejected. Its graph of recurrent layers is built while the next draft runs."""
        self._target.commit(self._context, len(self._context) - (self._pass is None))

    def _wait_for(self, draft: Draft, proposed: Proposed) -> float | None:
        """The clock when `draft` is done; None in rounds that are not timed apart."""
        if not len(draft):
            return None
        kind = len(draft), self._before.full
        self._rounds_of[kind] = self._rounds_of.get(kind, 0) + 1
        typical = kind in self._draft_shares and not self._before.plain and not proposed.read_tokens
        if device.queues_ahead() and typical and self._rounds_of[kind] % TIMED_EVERY:
            return None
        device.wait(draft.tokens)
        return self._clock()

    def _draft_seconds(self, done: Pass, since: float, now: float) -> float:
        """The draft's part of `since` to `now`: measured, or in proportion to the last measured round of this kind."""
        kind, before = (len(done.draft), self._before.full), self._before
        if done.drafted_at is None:
            return (now - since) * self._draft_shares.get(kind, 0.0)
        # After plain rounds a draft first reads what they emitted, and where the device settled since, its first step
        # ran in the time of whoever waited: no measure for others, unless there is none (a race settles every round).
        alone = before.settled == device.times_settled() or kind not in self._draft_shares
        own = not before.plain and not done.read_tokens and alone
        if len(done.draft) and own and now > since:
            self._draft_shares[kind] = (done.drafted_at - since) / (now - since)
        return done.drafted_at - since

    def _queue(self, draft: Draft, output: Output, verdict: Verdict, reason: str) -> Pass:
        packed, token = queue_verdict(self._target.network, draft, output.logits, verdict)
        top = self._logprobs
        found = None if top is None else logprobs(output.logits, draft.tokens, verdict, top)
        return Pass(draft, packed, token, output.hidden, reason, found)


def queue_verdict(network: Network, draft: Draft, logits: mx.array, verdict: Verdict) -> tuple[mx.array, mx.array]:
    """(what the host reads of a round, the target's token after it), as all ranks of `network` agreed."""
    own = read_back(draft, logits, verdict)
    packed = network.agreed(own)
    device.queue(packed)
    return packed, verdict.next if packed is own else packed[-1]


def read_back(draft: Draft, logits: mx.array, verdict: Verdict) -> mx.array:
    """What the host reads of a round: draft tokens, a witness that its scores are finite, accepted, next. Lazy."""
    scalars = mx.stack([witness(logits, draft.log_q), verdict.accepted, verdict.next])
    return mx.concatenate([draft.tokens, scalars]) if len(draft) else scalars


def cut_after_stop(tokens: list[int], stop_tokens: frozenset[int]) -> list[int]:
    """`tokens` up to and including the first stop token."""
    for i, token in enumerate(tokens):
        if token in stop_tokens:
            return tokens[: i + 1]
    return tokens
