"""A conversation, taken apart for the bench. Law: whatever is measured is the product's own loop or mlx-lm's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from specdec_cli.bench.sweep import Cancelled
from specdec_cli.engine import teacher_forcing, timing
from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.base import Drafter, Parts, read_together
from specdec_cli.kinds import made
from specdec_cli.request import Request
from specdec_cli.session.session import Session

# Turns of cost rounds after each prompt.
TURNS = 2


def plain_tokens(session: Session, prompt: Sequence[int], request: Request) -> Iterator[int]:
    """mlx-lm's plain decoding, token by token, each of them detokenized as an answer's are."""
    tokenizer = session.pair.tokenizer
    stream = tokenizer.stream(())
    for token in _baseline_tokens(session, prompt, request):
        if token not in tokenizer.stop_tokens:
            stream.step(token)
        yield token


def _baseline_tokens(session: Session, prompt: Sequence[int], request: Request) -> Iterator[int]:
    sampling = session.sampling(request)
    changed = sampling.counts_tokens or sampling.logit_bias or request.constraint
    if sampling.greedy and not changed:
        network, stops = session.slot.target.network.module, session.pair.tokenizer.stop_tokens
        tokens = session.allowed_tokens(prompt, request)
        return (round.next for round in baseline(network, prompt, tokens, stops, session.clock))
    return (step.token for step in session.plain(prompt, request))


def offline_acceptance(
    session: Session, prompt: Sequence[int], answer: Sequence[int], request: Request, deepest: int
) -> tuple[Sequence[int], Sequence[int]]:
    """(drafted, accepted) of a round that begins at each token of `answer`, without running any."""
    rule, draft = session.rule(prompt, request), session.slot.draft
    target = session.slot.target
    if session.drafter(request).learns and draft is not None:
        draft.reuse(prompt)
        forced = teacher_forcing.TeacherForced(draft, target.vocab_size, rule)
        agreements = list(forced.agreements(prompt, answer))
        return [deepest] * len(answer), teacher_forcing.runs(agreements, deepest)
    if session.drafter(request).reads_hidden and session.slot.head is not None:
        found = teacher_forcing.head_runs(session.slot.head, target, rule, prompt, answer, deepest)
        return [deepest] * len(answer), found
    drafter = made(session.drafter(request))(Parts(target, draft, rule, Fixed(deepest)))
    return teacher_forcing.proposals(drafter, prompt, answer, deepest)


def round_costs(
    session: Session, context: Sequence[int], request: Request, ks: Sequence[int], cancelled: Callable[[], bool]
) -> list[timing.RoundCost]:
    """Rounds of every K after `context`; fewer where they would not fit the models' context."""
    limit, slot = session.context_limit(request), session.slot
    needed = TURNS * (sum(ks) + len(ks) + timing.PLAIN_ROUNDS + 2) + 2
    if limit is not None:
        context = context[: max(limit - needed, 1)]
    rule, kind = session.rule(context, request), session.drafter(request)
    # What drafts at no cost is timed with drafts of every length, right or wrong.
    drafter: Drafter = timing.RepeatDrafter()
    if kind.learns:
        drafter = made(kind)(Parts(slot.target, slot.draft, rule, Fixed(max(ks)), head=slot.head))
    slot.forget()
    for _ in read_together(slot.target, drafter, context):
        if cancelled():
            raise Cancelled
    return timing.round_costs(slot.target, drafter, rule, context, ks, TURNS, session.clock, cancelled)
