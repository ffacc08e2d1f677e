"""Is a pair lossless on this machine? Law: the reference is plain decoding that shares no loop, cache or rollback.

Texts are compared greedily and under `coupled`, where the text is a function of the request. Under `token` and `block`
the same distribution gives different texts, so equality would prove nothing. Gaps are measured in the scores of plain
decoding. Then the texts are read once more, to measure what rounding can do to them (`audit.rounding`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from specdec_cli.audit.compare import Compared, compare
from specdec_cli.audit.divergence import Audit, Finding
from specdec_cli.audit.measure import OnText, measure, rows_of
from specdec_cli.audit.prompts import AuditPrompt
from specdec_cli.engine import device
from specdec_cli.engine.rounding import KnownText, Position
from specdec_cli.events import Round, RoundDone, Start
from specdec_cli.kinds import COUPLED, DEFAULT_DRAFTER
from specdec_cli.request import Constraint, Request
from specdec_cli.session.session import Session

OnProgress = Callable[[int, int, str], None]
# A token at the edge of a cut is in or out by one rounding, and no gap measures that.
NO_CUTS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What is compared: every prompt at each of `ks`, greedily and, unless `temperature` is 0, under `coupled`."""

    prompts: Sequence[AuditPrompt]
    ks: Sequence[int | Literal["auto"]]
    drafter: str = DEFAULT_DRAFTER
    max_tokens: int = 64
    temperature: float = 0.8
    seed: int = 0
    raw: bool = False
    gap: float | None = None
    constraint: Constraint | None = None

    def texts(self) -> list[tuple[AuditPrompt, float]]:
        """Each prompt at each temperature."""
        temperatures = [0.0, self.temperature] if self.temperature else [0.0]
        return [(prompt, temperature) for prompt in self.prompts for temperature in temperatures]

    def request(self, temperature: float, k: int | Literal["auto"]) -> Request:
        sampling = NO_CUTS | {"temperature": temperature}
        return Request(
            self.max_tokens,
            k=k,
            drafter=self.drafter,
            rule=COUPLED.name,
            seed=self.seed,
            sampling=sampling,
            constraint=self.constraint,
        )


def run_audit(session: Session, plan: AuditPlan, on_progress: OnProgress) -> Audit:
    """Compare every answer of `plan`, then measure rounding on the same texts; `on_progress` is called before each.

    Raises: DoesNotFit for a prompt that fills the context.
    """
    texts = plan.texts()
    total, done = len(texts) * (len(plan.ks) + 1), count(1)

    def progress(name: str) -> None:
        on_progress(next(done), total, name)

    known: list[tuple[str, KnownText]] = []
    findings: list[tuple[Finding, float]] = []
    compared: list[tuple[Sequence[Position], float]] = []
    rows = set(rows_of(plan.ks))
    for prompt, temperature in texts:
        text, start, found, most = _compare_text(session, plan, prompt, temperature, progress)
        rows |= {most} if plan.constraint else set()  # what a shape forces is drafted beyond every K
        known.append((prompt.name, text))
        findings += [(finding, temperature) for finding in found]
        compared += [(text.positions[: finding.tokens], temperature) for finding in found]
    rounding = measure(session, known, sorted(rows), plan.gap, lambda name: progress(f"{name}: rounding"))
    masked = f" under the same {plan.constraint.noun}" if plan.constraint else ""
    limits = {temperature: rounding.limit(temperature) for _, temperature in findings}
    return Audit(
        target=start.target,
        draft=start.draft,
        drafter=start.drafter,
        dtype=start.dtype,
        device=start.device,
        plain=f"mlx-lm {device.versions()['mlx-lm']}'s own generate_step{masked}",
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        seed=plan.seed,
        sampling=start.sampling,
        rounding=rounding,
        constraint=plan.constraint.kind if plan.constraint else None,
        findings=[finding.judged(limits[temperature]) for finding, temperature in findings],
        expected_flips=sum(rounding.flips([at.margin for at in read], temperature) for read, temperature in compared),
    )


def _compare_text(
    session: Session, plan: AuditPlan, prompt: AuditPrompt, temperature: float, progress: OnText
) -> tuple[KnownText, Start, list[Finding], int]:
    """Plain decoding's answer, the setting, one finding for each K, and the most rows that a pass had.

    A near-tie's limit is not known yet.
    """
    ids = session.raw_tokens(prompt.text) if plan.raw else session.chat_tokens(prompt.text)
    requests = [plan.request(temperature, k) for k in plan.ks]
    replies = []
    for request in requests:
        progress(prompt.name)
        replies.append(_reply(session, ids, request))
    answers = [[token for round in rounds for token in round.emitted] for _, rounds in replies]
    text, compared = compare(ids, session.plain(ids, requests[0]), answers, session.piece)
    findings = [_finding(prompt, *reply, one) for reply, one in zip(replies, compared, strict=True)]
    most = max(len(round.draft) + 1 for _, rounds in replies for round in rounds)
    return text, replies[0][0], findings, most


def _reply(session: Session, ids: Sequence[int], request: Request) -> tuple[Start, list[Round]]:
    """specdec's own rounds; the emitted tokens include a stop token."""
    events = list(session.reply(ids, request))
    start = next(event for event in events if isinstance(event, Start))
    return start, [event.round for event in events if isinstance(event, RoundDone)]


def _finding(prompt: AuditPrompt, start: Start, rounds: Sequence[Round], compared: Compared) -> Finding:
    drafted, accepted = sum(len(round.draft) for round in rounds), sum(round.accepted for round in rounds)
    return Finding(prompt.name, start.rule, start.k, drafted, accepted, compared.tokens, compared.divergence)
