"""Is a pair lossless on this machine? Law: what specdec emits is compared with plain decoding that shares no loop, no
cache and no rollback with it; gaps are taken from plain decoding's own scores.

Compared where the text is a function of the request: greedily, and coupled. Under `token` and `block` two equal laws
give different texts, so equality says nothing about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from specdec_cli.audit.divergence import Audit, Divergence, Finding, Limit, Token
from specdec_cli.audit.prompts import Sample
from specdec_cli.engine import device
from specdec_cli.events import Round, RoundDone, Start
from specdec_cli.request import Request
from specdec_cli.session.session import Session

if TYPE_CHECKING:
    from specdec_cli.engine.baseline import PlainStep

Report = Callable[[int, int, str], None]
# A token at the edge of a cut is in or out by a rounding, and no gap tells by how little.
NO_CUTS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared: every sample greedily, and coupled at `temperature` unless that is 0, for each of `ks`."""

    samples: Sequence[Sample]
    ks: Sequence[int | Literal["auto"]]
    drafter: str = "model"
    max_tokens: int = 64
    temperature: float = 0.8
    seed: int = 0
    raw: bool = False
    gap: float | None = None

    def requests(self) -> list[tuple[Sample, Request]]:
        temperatures = [0.0, self.temperature] if self.temperature else [0.0]
        return [
            (sample, self._request(temperature, k))
            for sample in self.samples
            for temperature in temperatures
            for k in self.ks
        ]

    def _request(self, temperature: float, k: int | Literal["auto"]) -> Request:
        sampling = NO_CUTS | {"temperature": temperature}
        return Request(self.max_tokens, k=k, drafter=self.drafter, rule="coupled", seed=self.seed, sampling=sampling)


def run_audit(session: Session, plan: Plan, report: Report) -> Audit:
    """Compare every request of `plan`; `report` hears of each before it begins.

    Raises: DoesNotFit for a sample that fills the context.
    """
    requests, findings = plan.requests(), []
    limit = Limit(_precision(session.dtype), plan.gap)
    for done, (sample, request) in enumerate(requests, 1):
        report(done, len(requests), sample.name)
        prompt = session.raw_tokens(sample.text) if plan.raw else session.chat_tokens(sample.text)
        start, rounds = _reply(session, prompt, request)
        emitted = [token for round in rounds for token in round.emitted]
        tokens, divergence = _compare(session, session.plain(prompt, request), emitted, limit, start.temperature)
        drafted, accepted = sum(len(round.draft) for round in rounds), sum(round.accepted for round in rounds)
        findings.append(Finding(sample.name, start.rule, start.k, drafted, accepted, tokens, divergence))
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
    """What the network really computes in."""
    return device.float32_products() if dtype == "float32" else dtype


def _reply(session: Session, prompt: Sequence[int], request: Request) -> tuple[Start, list[Round]]:
    """What specdec says: a stop token is among the emitted ones."""
    events = list(session.reply(prompt, request))
    start = next(event for event in events if isinstance(event, Start))
    return start, [event.round for event in events if isinstance(event, RoundDone)]


def _compare(
    session: Session, plain: Iterator[PlainStep], emitted: Sequence[int], limit: Limit, temperature: float
) -> tuple[int, Divergence | None]:
    """Tokens compared, and the first that differs: behind it both texts are right, each for its own past."""
    compared = 0
    for step, token in zip_longest(plain, emitted):
        compared += 1
        if step is None or token is None:  # one of them ended before its stop token or its last token
            gap, allowed = float("inf"), 0.0
        elif step.token == token:
            continue
        else:
            gap, allowed = step.lead(token), limit.at(step.largest_logit, temperature)
        theirs = None if step is None else Token(step.token, session.piece(step.token))
        ours = None if token is None else Token(token, session.piece(token))
        return compared, Divergence(compared - 1, theirs, ours, gap, allowed)
    return compared, None
