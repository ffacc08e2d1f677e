"""Loaded pairs as the bench's machine: one target, and beside it every draft.

Every answer starts from empty caches, drafted and plain alike, and both pass through the same detokenizer.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median
from typing import Any

from specdec_cli.apps.bench.result import Arm, Contender, Environment, Sample
from specdec_cli.apps.bench.sweep import MAX_TOKENS, BenchRequest, Cancelled
from specdec_cli.core.events import Finish, Prefill, Round, RoundDone
from specdec_cli.core.kinds import DRAFTERS
from specdec_cli.core.progress import OnStep, unseen
from specdec_cli.core.request import Request
from specdec_cli.engine import device
from specdec_cli.measure.plain import plain_tokens
from specdec_cli.measure.prompts import PromptId, SamplePrompt
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.session.load import Wishes, beside, load_spec
from specdec_cli.session.session import Session
from specdec_cli.system.machine import physical_bytes
from specdec_cli.version import __version__

# What a stop token's logit is moved by where answers have a fixed length.
NEVER = -1e9
FROM_STATS = (
    *("emitted_tokens", "target_passes", "ttft_seconds", "decode_seconds", "draft_n", "draft_n_accepted"),
    *("draft_seconds", "verify_seconds", "draft_prefill_seconds", "peak_memory_bytes"),
)


class LiveMachine:
    """Implements sweep.Machine: one target, and a session for each draft, whose name is its key."""

    def __init__(
        self,
        sessions: Mapping[str | None, Session],
        request: BenchRequest,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sessions, self._request, self._cancelled, self.clock = sessions, request, cancelled, time.perf_counter
        self._any = next(iter(sessions.values()))
        self._ids: dict[PromptId, list[int]] = {}
        self.contenders = _contenders(sessions, request)
        self.environment = _environment(self._any)

    def fitting(self, prompts: Sequence[SamplePrompt], tokens: int) -> list[SamplePrompt]:
        limit = min(session.pair.context.tokens(Request()) or sys.maxsize for session in self._sessions.values())
        return [prompt for prompt in prompts if len(self._tokens(prompt)) + tokens <= limit]

    def sleep(self, seconds: float) -> None:
        """In small steps, so that Ctrl-C is heard."""
        end = self.clock() + seconds
        while (left := end - self.clock()) > 0 and not self._cancelled():
            time.sleep(min(left, 0.1))

    def answer(self, arm: Arm, prompt: SamplePrompt, max_tokens: int) -> Sample:
        session, ids = self._sessions.get(arm.contender.draft, self._any), self._tokens(prompt)
        stops = sorted(self._any.pair.tokenizer.stop_tokens) if self._request.settings.ends == "fixed" else []
        request = Request(
            max_tokens=max_tokens,
            k=arm.k,
            drafter=arm.contender.drafter,
            rule=self._request.settings.rule,
            seed=self._request.settings.seed,
            sampling={"temperature": arm.temperature},
            logit_bias=tuple((token, NEVER) for token in stops),
        )
        session.slot.forget()
        device.reset_peak_memory()
        measure = self._plain if arm.k == 0 else self._drafted
        return measure(session, arm, prompt.id, ids, request)

    def _plain(self, session: Session, arm: Arm, prompt: PromptId, ids: Sequence[int], request: Request) -> Sample:
        times, tokens = [self.clock()], list[int]()
        for token in plain_tokens(session, ids, request):
            times.append(self.clock())
            tokens.append(token)
            self._stop_if_cancelled()
        prefill, decode = times[1] - times[0], times[-1] - times[1]
        return Sample(
            arm=arm,
            prompt=prompt,
            phase="confirm",
            started_seconds=times[0],
            prompt_tokens=len(ids),
            emitted_tokens=len(tokens),
            target_passes=len(tokens),
            prefill_seconds=prefill,
            ttft_seconds=prefill,
            decode_seconds=decode,
            finish="stop" if tokens[-1] in session.pair.tokenizer.stop_tokens else "length",
            verify_seconds=decode,
            peak_memory_bytes=device.peak_memory_bytes(),
        )

    def _drafted(self, session: Session, arm: Arm, prompt: PromptId, ids: Sequence[int], request: Request) -> Sample:
        began, rounds, prefill = self.clock(), list[Round](), 0.0
        stats: Mapping[str, Any] = {}
        for event in session.reply(ids, request, self._cancelled, self._request.settings.raw):
            if isinstance(event, Prefill):
                prefill = event.seconds
            elif isinstance(event, RoundDone):
                rounds.append(event.round)
            elif isinstance(event, Finish):
                stats, finish = event.stats, event.reason
        self._stop_if_cancelled()
        full = [round for round in rounds if len(round.draft) == arm.k]
        return Sample(
            arm=arm,
            prompt=prompt,
            phase="confirm",
            started_seconds=began,
            prompt_tokens=len(ids),
            prefill_seconds=prefill,
            finish=finish,
            rejected_n=sum(round.rejected is not None for round in rounds),
            round_draft_seconds=median(round.draft_seconds for round in full) if full else None,
            round_verify_seconds=median(round.verify_seconds for round in full) if full else None,
            first_tokens=len(rounds[0].emitted),
            **{name: stats[name] for name in FROM_STATS},
        )

    def _tokens(self, prompt: SamplePrompt) -> list[int]:
        if prompt.id not in self._ids:
            encode = self._any.pair.text_tokens if self._request.settings.raw else self._any.pair.chat_tokens
            self._ids[prompt.id] = encode(prompt.text)
        return self._ids[prompt.id]

    def _stop_if_cancelled(self) -> None:
        if self._cancelled():
            raise Cancelled


def load_machine(
    request: BenchRequest,
    cancelled: Callable[[], bool],
    tell: Callable[[str], None] = lambda sentence: None,
    report: OnStep = unseen,
) -> LiveMachine:
    """The loaded models; `tell` hears of an unusual head, `report` how far the loading is.

    Raises: NotAvailable, Refused, DoesNotFit.
    """
    kinds = [DRAFTERS[name] for name in request.drafters]
    drafter = max(kinds, key=lambda kind: (kind.reads_hidden, kind.by_network))
    longest = max(len(prompt.text) for prompt in request.prompts) // 3 + (request.settings.max_tokens or MAX_TOKENS)
    # Twice: plain decoding has caches of its own.
    reserve_tokens = None if request.force else 2 * longest
    others = [replace(request.pair, draft=name, draft_revision=None, draft_adapter=None) for name in request.drafts]
    drafts = tuple(Fit.of(find(PairSpec(other))).footprints[1] for other in others)
    only = frozenset({"--force"})
    wishes = Wishes(reserve_tokens=reserve_tokens, tell=tell, report=report, remedies=only, more=drafts)
    pair = load_spec(PairSpec(request.pair, drafter.name), wishes)
    pairs = [pair, *(beside(pair, other) for other in others)]
    sessions = [one.session(one.first) for one in pairs]
    return LiveMachine({session.pair.names[1]: session for session in sessions}, request, cancelled)


def _contenders(sessions: Mapping[str | None, Session], request: BenchRequest) -> tuple[Contender, ...]:
    """Drafters by network with each draft, under the kind that really drafts (a head has its own); the others once."""
    kinds = [DRAFTERS[name] for name in request.drafters]
    found = []
    for kind in kinds:
        if kind.by_network:
            drafters = {n: one.pair.drafting(Request(drafter=kind.name)).kind.name for n, one in sessions.items()}
            found += [Contender(drafter, name) for name, drafter in drafters.items()]
    found += [Contender(kind.name) for kind in kinds if not kind.by_network]
    return tuple(dict.fromkeys(found))


def _environment(session: Session) -> Environment:
    mac = f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else ""
    return Environment(
        chip=device.device_name(),
        device=device.backend(),
        system=mac or f"{platform.system()} {platform.release()}",
        memory_bytes=physical_bytes(),
        cores=os.cpu_count() or 1,
        dtype=session.pair.dtype,
        caches={"target": session.slot.target.cache_kinds},
        versions={"specdec": __version__, "python": platform.python_version(), **device.versions()},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
