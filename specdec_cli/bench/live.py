"""Loaded pairs as the bench's machine. Law: every answer starts from empty caches, drafted and plain alike, and both
pass through the same detokenizer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Arm, Condition, Contender, CostSample, OfflineAcceptance, PromptId, Sample, plain
from specdec_cli.bench.session import offline_acceptance, plain_tokens, round_costs
from specdec_cli.bench.sweep import Cancelled, MeasuredAnswer
from specdec_cli.engine import device
from specdec_cli.events import Finish, Prefill, RoundDone
from specdec_cli.kinds import effective_rule
from specdec_cli.request import Constraint, Request
from specdec_cli.session.session import Session

# What a stop token's logit is moved by where answers have a fixed length.
NEVER = -1e9
# Tokens of the answers that are thrown away to warm up.
WARM_TOKENS = 16
FROM_STATS = (
    "emitted_tokens",
    "target_passes",
    "ttft_seconds",
    "decode_seconds",
    "draft_n",
    "draft_n_accepted",
    "draft_seconds",
    "verify_seconds",
    "draft_prefill_seconds",
    "peak_memory_bytes",
)


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """What all answers of a bench have in common."""

    max_tokens: int
    rule: str
    seed: int
    raw: bool
    fixed_length: bool
    constraint: Constraint | None = None


class LiveMachine:
    """Implements bench.Machine: one target, a session for each draft."""

    def __init__(
        self,
        sessions: Mapping[str | None, Session],
        settings: AnswerSettings,
        cancelled: Callable[[], bool],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._sessions, self.settings, self._cancelled, self.clock = sessions, settings, cancelled, clock
        self._any = next(iter(sessions.values()))
        self._ids: dict[PromptId, list[int]] = {}

    def fitting(self, prompts: Sequence[BenchPrompt], tokens: int) -> list[BenchPrompt]:
        limit = min((s.context_limit(Request()) or sys.maxsize for s in self._sessions.values()), default=sys.maxsize)
        return [prompt for prompt in prompts if len(self._tokens(prompt)) + tokens <= limit]

    def limit(self, max_tokens: int) -> None:
        self.settings = replace(self.settings, max_tokens=max_tokens)

    def sleep(self, seconds: float) -> None:
        """In small steps, so that Ctrl-C is heard."""
        end = self.clock() + seconds
        while (left := end - self.clock()) > 0 and not self._cancelled():
            time.sleep(min(left, 0.1))

    def warm_up(self, prompt: BenchPrompt, conditions: Sequence[Condition], deepest: int) -> tuple[float, float]:
        asked = self.settings
        self.settings = replace(asked, max_tokens=WARM_TOKENS, fixed_length=True)
        try:
            for condition in conditions:
                first = self.answer(plain(condition.temperature), prompt)
                if condition.contender.measurable_offline and deepest:
                    self.answer(Arm(condition.contender, condition.temperature, deepest), prompt)
                    self.costs(condition, prompt, first.tokens, range(1, deepest + 1))
            sample = self.answer(plain(conditions[0].temperature), prompt).sample
        finally:
            self.settings = asked
        return sample.ttft_seconds, sample.decode_seconds / max(sample.emitted_tokens - 1, 1)

    def answer(self, arm: Arm, prompt: BenchPrompt) -> MeasuredAnswer:
        session, ids = self._session(arm.contender), self._tokens(prompt)
        session.slot.forget()
        device.reset_peak_memory()
        if arm.k == 0:
            return self._plain(session, arm, prompt, ids)
        return self._drafted(session, arm, prompt, ids)

    def offline_acceptance(
        self, condition: Condition, prompt: BenchPrompt, tokens: tuple[int, ...], deepest: int
    ) -> OfflineAcceptance:
        session, ids = self._session(condition.contender), self._tokens(prompt)
        arm = Arm(condition.contender, condition.temperature, deepest)
        request = self._request(arm)
        replayed = effective_rule(request.rule, request.seed, condition.temperature).same_noise
        if replayed:
            session.slot.forget()
            drafted, accepted = offline_acceptance(session, ids, tokens, request, deepest)
            said = len(tokens)
        else:
            events = list(session.reply(ids, request, self._cancelled, self.settings.raw))
            rounds = [event.round for event in events if isinstance(event, RoundDone)][1:]
            drafted, accepted = [len(r.draft) for r in rounds], [r.accepted for r in rounds]
            said = 1 + sum(len(r.emitted) for r in rounds)
        self._stop_if_cancelled()
        return OfflineAcceptance(
            condition,
            PromptId(prompt.kind, prompt.name),
            said,
            self.settings.max_tokens,
            deepest,
            tuple(drafted),
            tuple(accepted),
            replayed,
        )

    def costs(
        self, condition: Condition, prompt: BenchPrompt, tokens: tuple[int, ...], ks: Sequence[int]
    ) -> list[CostSample]:
        """Behind half the answer, so that the context is as long as it is on the average."""
        session = self._session(condition.contender)
        context = [*self._tokens(prompt), *tokens[: len(tokens) // 2]]
        request = self._request(Arm(condition.contender, condition.temperature, max(ks)))
        found = round_costs(session, context, request, ks, self._cancelled)
        self._stop_if_cancelled()
        return [
            CostSample(condition, len(context), c.k, c.draft_seconds, c.verify_seconds, c.plain_seconds) for c in found
        ]

    def _plain(self, session: Session, arm: Arm, prompt: BenchPrompt, ids: Sequence[int]) -> MeasuredAnswer:
        began = first = last = self.clock()
        tokens: list[int] = []
        for token in plain_tokens(session, ids, self._request(arm)):
            last = self.clock()
            first = last if not tokens else first
            tokens.append(token)
            self._stop_if_cancelled()
        sample = Sample(
            arm=arm,
            prompt=PromptId(prompt.kind, prompt.name),
            phase="learn",
            started_seconds=began,
            prompt_tokens=len(ids),
            emitted_tokens=len(tokens),
            target_passes=len(tokens),
            prefill_seconds=first - began,
            ttft_seconds=first - began,
            decode_seconds=last - first,
            finish="stop" if tokens[-1] in session.pair.tokenizer.stop_tokens else "length",
            verify_seconds=last - first,
            peak_memory_bytes=device.peak_memory_bytes(),
        )
        return MeasuredAnswer(tuple(tokens), sample)

    def _drafted(self, session: Session, arm: Arm, prompt: BenchPrompt, ids: Sequence[int]) -> MeasuredAnswer:
        began, tokens, prefill, rejected = self.clock(), list[int](), 0.0, 0
        stats: Mapping[str, Any] = {}
        for event in session.reply(ids, self._request(arm), self._cancelled, self.settings.raw):
            if isinstance(event, Prefill):
                prefill = event.seconds
            elif isinstance(event, RoundDone):
                tokens += event.round.emitted
                rejected += event.round.rejected is not None
            elif isinstance(event, Finish):
                stats, finish = event.stats, event.reason
        self._stop_if_cancelled()
        sample = Sample(
            arm=arm,
            prompt=PromptId(prompt.kind, prompt.name),
            phase="learn",
            started_seconds=began,
            prompt_tokens=len(ids),
            prefill_seconds=prefill,
            finish=finish,
            rejected_n=rejected,
            **{name: stats[name] for name in FROM_STATS},
        )
        return MeasuredAnswer(tuple(tokens), sample)

    def _request(self, arm: Arm) -> Request:
        asked = self.settings
        bias = (
            tuple((token, NEVER) for token in sorted(self._any.pair.tokenizer.stop_tokens))
            if asked.fixed_length
            else ()
        )
        return Request(
            max_tokens=asked.max_tokens,
            k=arm.k,
            drafter=arm.contender.drafter,
            rule=asked.rule,
            seed=asked.seed,
            sampling={"temperature": arm.temperature},
            logit_bias=bias,
            constraint=asked.constraint,
        )

    def _session(self, contender: Contender) -> Session:
        return self._sessions.get(contender.draft, self._any)

    def _tokens(self, prompt: BenchPrompt) -> list[int]:
        known = PromptId(prompt.kind, prompt.name)
        if known not in self._ids:
            self._ids[known] = (self._any.raw_tokens if self.settings.raw else self._any.chat_tokens)(prompt.text)
        return self._ids[known]

    def _stop_if_cancelled(self) -> None:
        if self._cancelled():
            raise Cancelled
