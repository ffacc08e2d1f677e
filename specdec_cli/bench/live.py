"""Loaded pairs as the bench's machine: one target, and beside it every draft.

Every answer starts from empty caches, drafted and plain alike, and both pass through the same detokenizer.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from specdec_cli import __version__
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Arm, Contender, Environment, PromptId, Sample
from specdec_cli.bench.sweep import MAX_TOKENS, BenchRequest, Cancelled, Subjects
from specdec_cli.engine import device
from specdec_cli.engine.baseline import baseline
from specdec_cli.events import Finish, Prefill, Round, RoundDone
from specdec_cli.kinds import DRAFTERS, DrafterKind
from specdec_cli.machine import physical_bytes
from specdec_cli.request import Constraint, Request
from specdec_cli.session.load import beside, load
from specdec_cli.session.session import Session

# What a stop token's logit is moved by where answers have a fixed length.
NEVER = -1e9
# Tokens of the answers that are thrown away to warm up.
WARM_TOKENS = 8
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

    def warm_up(self, prompt: BenchPrompt, arms: Sequence[Arm], seconds: float) -> tuple[float, float]:
        asked, began = self.settings, self.clock()
        self.settings = replace(asked, max_tokens=WARM_TOKENS, fixed_length=True)
        try:
            sample = self.answer(arms[0], prompt)
            for arm in arms[1:]:
                if self.clock() - began < seconds:
                    self.answer(arm, prompt)
            if self.clock() - began < seconds:
                sample = self.answer(arms[0], prompt)
        finally:
            self.settings = asked
        return sample.ttft_seconds, 1 / sample.tokens_per_second

    def answer(self, arm: Arm, prompt: BenchPrompt) -> Sample:
        session, ids = self._session(arm.contender), self._tokens(prompt)
        session.slot.forget()
        device.reset_peak_memory()
        if arm.k == 0:
            return self._plain(session, arm, prompt, ids)
        return self._drafted(session, arm, prompt, ids)

    def _plain(self, session: Session, arm: Arm, prompt: BenchPrompt, ids: Sequence[int]) -> Sample:
        began = first = last = self.clock()
        tokens: list[int] = []
        for token in plain_tokens(session, ids, self._request(arm)):
            last = self.clock()
            first = last if not tokens else first
            tokens.append(token)
            self._stop_if_cancelled()
        return Sample(
            arm=arm,
            prompt=PromptId(prompt.kind, prompt.name),
            phase="confirm",
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

    def _drafted(self, session: Session, arm: Arm, prompt: BenchPrompt, ids: Sequence[int]) -> Sample:
        began, rounds, prefill = self.clock(), list[Round](), 0.0
        stats: Mapping[str, Any] = {}
        for event in session.reply(ids, self._request(arm), self._cancelled, self.settings.raw):
            if isinstance(event, Prefill):
                prefill = event.seconds
            elif isinstance(event, RoundDone):
                rounds.append(event.round)
            elif isinstance(event, Finish):
                stats, finish = event.stats, event.reason
        self._stop_if_cancelled()
        full = [round for round in rounds if len(round.draft) == arm.k]
        deepest = max((len(round.draft) for round in rounds), default=0)
        return Sample(
            arm=arm,
            prompt=PromptId(prompt.kind, prompt.name),
            phase="confirm",
            started_seconds=began,
            prompt_tokens=len(ids),
            prefill_seconds=prefill,
            finish=finish,
            rejected_n=sum(round.rejected is not None for round in rounds),
            round_draft_seconds=median(round.draft_seconds for round in full) if full else None,
            round_verify_seconds=median(round.verify_seconds for round in full) if full else None,
            drafted_at=_at_least([len(round.draft) for round in rounds], deepest),
            accepted_at=_at_least([round.accepted for round in rounds], deepest),
            **{name: stats[name] for name in FROM_STATS},
        )

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


def plain_tokens(session: Session, prompt: Sequence[int], request: Request) -> Iterator[int]:
    """mlx-lm's plain decoding, token by token, each of them detokenized as an answer's are."""
    tokenizer, sampling = session.pair.tokenizer, session.sampling(request)
    stream, stops = tokenizer.stream(()), tokenizer.stop_tokens
    changed = sampling.counts_tokens or sampling.logit_bias or request.constraint
    if sampling.greedy and not changed:
        network, tokens = session.slot.target.network.module, session.allowed_tokens(prompt, request)
        found = (round.next for round in baseline(network, prompt, tokens, stops, session.clock))
    else:
        found = (step.token for step in session.plain(prompt, request))
    for token in found:
        if token not in stops:
            stream.step(token)
        yield token


def _at_least(counts: Sequence[int], deepest: int) -> tuple[int, ...]:
    """[i] = how many counts are above i."""
    return tuple(sum(count > place for count in counts) for place in range(deepest))


def load_machine(
    job: BenchRequest, cancelled: Callable[[], bool], tell: Callable[[str], None] = lambda sentence: None
) -> tuple[LiveMachine, Subjects]:
    """The loaded models, and what is true of them for the whole bench; `tell` hears of an unusual head.

    Raises: NotAvailable, Refused, DoesNotFit.
    """
    kinds = [DRAFTERS[name] for name in job.drafters]
    drafter = max(kinds, key=lambda kind: (kind.reads_hidden, kind.by_network))
    longest = max(len(prompt.text) for prompt in job.prompts) // 3 + (job.max_tokens or MAX_TOKENS)
    # Twice: plain decoding has caches of its own.
    reserve_tokens = None if job.force else 2 * longest
    pair = load(job.pair, drafter=drafter.name, reserve_tokens=reserve_tokens, tell=tell)
    first = pair.session(pair.first)
    others = [beside(pair, name) for name in job.drafts]
    sessions = {first.names[1]: first} | {other.names[1]: other.session(other.first) for other in others}
    settings = AnswerSettings(MAX_TOKENS, job.rule, job.seed, job.raw, job.fixed_length, job.constraint)
    machine = LiveMachine(sessions, settings, cancelled)
    held = job.constraint is not None
    networks = [kind for kind in kinds if kind.by_network]
    contenders = [Contender(who(kind, one), name, held) for kind in networks for name, one in sessions.items()]
    contenders += [Contender(kind.name, None, held) for kind in kinds if not kind.by_network]
    return machine, _about(first, tuple(dict.fromkeys(contenders)))


def who(kind: DrafterKind, session: Session) -> str:
    """The kind that really drafts: a head has one of its own."""
    return session.drafter(Request(drafter=kind.name)).name


def _about(session: Session, contenders: tuple[Contender, ...]) -> Subjects:
    environment = Environment(
        chip=_chip(),
        device=device.backend(),
        system=f"{platform.system()} {platform.release()}" if sys.platform != "darwin" else f"macOS {_macos()}",
        memory_bytes=physical_bytes(),
        cores=os.cpu_count() or 1,
        dtype=session.dtype,
        caches={"target": session.slot.target.cache_kinds},
        versions={"specdec": __version__, "python": platform.python_version(), **device.versions()},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return Subjects(contenders, environment)


def _macos() -> str:
    return platform.mac_ver()[0]


def _chip() -> str:
    """The device's own name; on a plain CPU the processor's, where the system tells it."""
    if device.backend() == "cpu" and sys.platform.startswith("linux"):
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
        return name or device.device_name()
    return device.device_name()
