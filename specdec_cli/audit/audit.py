"""Is a pair lossless on this machine? Law: the reference is plain decoding that shares no loop, cache or rollback.

Texts are compared greedily and under `coupled`, where the text is a function of the request. Under `token` and `block`
the same distribution gives different texts, so equality would prove nothing. Gaps are measured in the scores of plain
decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from specdec_cli.audit.divergence import Audit, Divergence, Finding, Limit, Token
from specdec_cli.audit.prompts import AuditPrompt
from specdec_cli.engine import device
from specdec_cli.events import Round, RoundDone, Start
from specdec_cli.kinds import COUPLED, DEFAULT_DRAFTER
from specdec_cli.request import Request
from specdec_cli.session.session import Session

if TYPE_CHECKING:
    from specdec_cli.engine.baseline import PlainStep

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

    def requests(self) -> list[tuple[AuditPrompt, Request]]:
        temperatures = [0.0, self.temperature] if self.temperature else [0.0]
        return [
            (prompt, self._request(temperature, k))
            for prompt in self.prompts
            for temperature in temperatures
            for k in self.ks
        ]

    def _request(self, temperature: float, k: int | Literal["auto"]) -> Request:
        sampling = NO_CUTS | {"temperature": temperature}
        return Request(self.max_tokens, k=k, drafter=self.drafter, rule=COUPLED.name, seed=self.seed, sampling=sampling)


def run_audit(session: Session, plan: AuditPlan, on_progress: OnProgress) -> Audit:
    """Compare every request of `plan`; `on_progress` is called before each.

    Raises: DoesNotFit for a prompt that fills the context.
    """
    requests, findings = plan.requests(), []
    limit = Limit(_precision(session.dtype), plan.gap)
    for done, (prompt, request) in enumerate(requests, 1):
        on_progress(done, len(requests), prompt.name)
        ids = session.raw_tokens(prompt.text) if plan.raw else session.chat_tokens(prompt.text)
        start, rounds = _reply(session, ids, request)
        emitted = [token for round in rounds for token in round.emitted]
        tokens, divergence = _compare(session, session.plain(ids, request), emitted, limit, start.temperature)
        drafted, accepted = sum(len(round.draft) for round in rounds), sum(round.accepted for round in rounds)
        findings.append(Finding(prompt.name, start.rule, start.k, drafted, accepted, tokens, divergence))
    return Audit(
        target=start.target,
        draft=start.draft,
        drafter=start.drafter,
        dtype=start.dtype,
        device=start.device,
        plain=f"mlx-lm {device.versions()['mlx-lm']}'s own generate_step",
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        seed=plan.seed,
        sampling=start.sampling,
        limit=limit,
        findings=findings,
    )


def _precision(dtype: str) -> str:
    """The precision in which the network really computes."""
    return device.float32_products() if dtype == "float32" else dtype


def _reply(session: Session, ids: Sequence[int], request: Request) -> tuple[Start, list[Round]]:
    """specdec's own rounds; the emitted tokens include a stop token."""
    events = list(session.reply(ids, request))
    start = next(event for event in events if isinstance(event, Start))
    return start, [event.round for event in events if isinstance(event, RoundDone)]


def _compare(
    session: Session, plain: Iterator[PlainStep], emitted: Sequence[int], limit: Limit, temperature: float
) -> tuple[int, Divergence | None]:
    """Tokens compared, and the first that differs. After it the texts have different pasts and are not comparable."""
    compared = 0
    for step, token in zip_longest(plain, emitted):
        compared += 1
        if step is None or token is None:  # one answer ended early
            gap, allowed = float("inf"), 0.0
        elif step.token == token:
            continue
        else:
            gap, allowed = step.lead(token), limit.at(step.largest_logit, temperature)
        theirs = None if step is None else Token(step.token, session.piece(step.token))
        ours = None if token is None else Token(token, session.piece(token))
        return compared, Divergence(compared - 1, theirs, ours, gap, allowed)
    return compared, None
