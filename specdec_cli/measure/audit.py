"""Is a pair lossless on this machine? The reference is mlx-lm's plain decoding: no loop, cache or rollback of specdec.

Answers are compared greedily and under `coupled`, where the text is a function of the request. Under `token` and
`block` the same distribution gives different texts, so equality would prove nothing. Then the same texts are read once
more in passes of several rows, to measure what rounding can do to them (`measure.rounding`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from specdec_cli.core.events import Round, RoundDone, Start
from specdec_cli.core.kinds import COUPLED, DEFAULT_DRAFTER
from specdec_cli.core.request import MAX_K, Request
from specdec_cli.engine import device
from specdec_cli.engine.baseline import KnownText, PlainStep, Position, mlx_lm_leads, row_leads
from specdec_cli.measure.divergence import Audit, Divergence, Finding, Token
from specdec_cli.measure.prompts import SamplePrompt
from specdec_cli.measure.rounding import Changes, LeadChange, Rounding, SeveralRows, difference
from specdec_cli.session.session import Session

OnProgress = Callable[[int, int, str], None]
K = int | Literal["auto"]
# A token at the edge of a cut is in or out by one rounding, and no gap measures that.
NO_CUTS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
# What `auto` is measured with: 4 drafted tokens, and the most that it drafts from a model.
AUTO_ROWS = (5, MAX_K + 1)


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What is compared: every prompt at each of `ks`, greedily and, unless `temperature` is 0, under `coupled`."""

    prompts: Sequence[SamplePrompt]
    ks: Sequence[K]
    drafter: str = DEFAULT_DRAFTER
    max_tokens: int = 64
    temperature: float = 0.8
    seed: int = 0
    raw: bool = False
    gap: float | None = None

    def request(self, temperature: float, k: K) -> Request:
        sampling = NO_CUTS | {"temperature": temperature}
        rule = COUPLED.name
        return Request(self.max_tokens, k=k, drafter=self.drafter, rule=rule, seed=self.seed, sampling=sampling)


def run_audit(session: Session, plan: AuditPlan, on_progress: OnProgress) -> Audit:
    """Compare every answer of `plan`, then measure rounding on the same texts; `on_progress` is called before each.

    Raises: DoesNotFit for a prompt that fills the context.
    """
    temperatures = [0.0, plan.temperature] if plan.temperature else [0.0]
    jobs = [(prompt, temperature) for prompt in plan.prompts for temperature in temperatures]
    total, done = len(jobs) * (len(plan.ks) + 1), count(1)

    def progress(name: str) -> None:
        on_progress(next(done), total, name)

    texts: list[tuple[str, KnownText]] = []
    findings: list[tuple[Finding, float, Sequence[Position]]] = []  # with its temperature and the positions compared
    for prompt, temperature in jobs:
        text, start, judged = _compare_text(session, plan, prompt, temperature, progress)
        texts.append((prompt.name, text))
        findings += [(finding, temperature, text.positions[: finding.tokens_compared]) for finding in judged]
    rounding = measure(session, texts, rows_of(plan.ks), plan.gap, lambda name: progress(f"{name}: rounding"))
    return Audit(
        target=start.target,
        draft=start.draft,
        drafter=start.drafter,
        dtype=start.dtype,
        device=start.device,
        compared_with=f"mlx-lm {device.versions()['mlx-lm']}'s own generate_step",
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        seed=plan.seed,
        sampling=start.sampling,
        rounding=rounding,
        findings=[finding.with_limit(rounding.limit(temperature)) for finding, temperature, _ in findings],
        near_ties_expected=sum(
            rounding.flips([at.margin for at in read], temperature) for _, temperature, read in findings
        ),
    )


def _compare_text(
    session: Session, plan: AuditPlan, prompt: SamplePrompt, temperature: float, on_answer: Callable[[str], None]
) -> tuple[KnownText, Start, list[Finding]]:
    """Plain decoding's answer, the setting, and a finding for each K with no limit yet."""
    ids = session.pair.text_tokens(prompt.text) if plan.raw else session.pair.chat_tokens(prompt.text)
    requests = [plan.request(temperature, k) for k in plan.ks]
    replies: list[tuple[Start, list[Round]]] = []
    for request in requests:
        on_answer(prompt.name)
        events = list(session.reply(ids, request))
        start = next(event for event in events if isinstance(event, Start))
        replies.append((start, [event.round for event in events if isinstance(event, RoundDone)]))
    answers = [[token for round in rounds for token in round.emitted] for _, rounds in replies]
    text, divergences = compare(ids, session.plain(ids, requests[0]), answers, session.pair.tokenizer.piece)
    findings = []
    for (start, rounds), divergence in zip(replies, divergences, strict=True):
        tokens = divergence.position + 1 if divergence else len(text.positions)
        drafted, accepted = sum(len(round.draft) for round in rounds), sum(round.accepted for round in rounds)
        findings.append(Finding(prompt.name, start.rule, start.k, drafted, accepted, tokens, divergence))
    return text, replies[0][0], findings


def compare(
    prompt: Sequence[int], plain: Iterable[PlainStep], answers: Sequence[Sequence[int]], piece: Callable[[int], str]
) -> tuple[KnownText, list[Divergence | None]]:
    """Plain decoding's answer to `prompt`, and where each of `answers` first differs from it, None where none does.

    Nothing is compared after a difference, since what was said before is another text there. `piece` is the text of
    one token. A divergence's limit is not known yet: 0.
    """

    def token(ids: Sequence[int], at: int) -> Token | None:
        return Token(ids[at], piece(ids[at])) if at < len(ids) else None

    positions: list[Position] = []
    divergences: list[Divergence | None] = [None] * len(answers)
    for at, step in enumerate(plain):
        positions.append(Position.of(step))
        for i, answer in enumerate(answers):
            if divergences[i] is None and answer[at : at + 1] != [step.token]:
                gap = step.lead(answer[at]) if at < len(answer) else math.inf
                divergences[i] = Divergence(at, token([step.token], 0), token(answer, at), gap)
    end = len(positions)
    for i, answer in enumerate(answers):
        if divergences[i] is None and len(answer) > end:
            divergences[i] = Divergence(end, None, token(answer, end), math.inf)
    return KnownText(prompt, positions), divergences


def rows_of(ks: Collection[K]) -> list[int]:
    """Rows of the passes that verify `ks` drafted tokens."""
    return sorted({rows for k in ks for rows in (AUTO_ROWS if k == "auto" else (k + 1,))})


def measure(
    session: Session,
    texts: Sequence[tuple[str, KnownText]],
    rows: Sequence[int],
    given: float | None = None,
    on_text: Callable[[str], None] = lambda _: None,
) -> Rounding:
    """The rounding of `session`'s target on `texts` (name, text), in passes of each of `rows` rows.

    `given` replaces the limit of a near-tie. `on_text` is called with each name before its text is read. What the
    session's target has read is replaced: it is the slot that answers that is measured.
    """
    target = session.slot.target
    precision = device.float32_products() if session.pair.dtype == "float32" else session.pair.dtype
    largest = max(position.largest_logit for _, text in texts for position in text.positions)
    machine: Mapping[int, list[LeadChange]] = {n: [] for n in rows}
    ours: Mapping[int, list[LeadChange]] = {n: [] for n in rows}
    for name, text in texts:
        on_text(name)
        for n in rows:
            theirs = {(read.position, read.row): read.leads for read in mlx_lm_leads(target, text, n)}
            for (position, row), leads in theirs.items():
                change = difference(leads, text.positions[position].leads)
                machine[n].append(LeadChange(name, "repeated", position, row, change))
            for read in row_leads(target, text, n):
                change = difference(read.leads, theirs[read.position, read.row])
                ours[n].append(LeadChange(name, read.reading, read.position, read.row, change))
    passes = [
        SeveralRows(n, Changes("mlx-lm", machine[n]), Changes("specdec", ours[n]), precision, largest) for n in rows
    ]
    return Rounding(precision, sum(len(text.positions) for _, text in texts), passes, given)
