"""Do both lanes say the same? Law: a difference is named with its gap, and judged as `specdec audit` judges one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from specdec_cli.audit.audit import measure, rows_of
from specdec_cli.audit.divergence import Divergence, Token
from specdec_cli.engine.rounding import KnownText, Position
from specdec_cli.race.plan import RacePlan
from specdec_cli.session.session import Session


def common_tokens(plain: Sequence[int], drafted: Sequence[int]) -> int:
    """Tokens before the first difference."""
    pairs = zip_longest(plain, drafted)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), len(plain))


def divergence(session: Session, plan: RacePlan, plain: Sequence[int], drafted: Sequence[int]) -> Divergence | None:
    """The first difference of two answers that ended, None if they are equal.

    Its gap is the distance of both lanes' tokens in the scores of mlx-lm's own plain decoding of the same prompt. Its
    limit is what rounding does to gaps in this text on this machine, which takes a few more passes to measure.
    """
    place = common_tokens(plain, drafted)
    if place >= max(len(plain), len(drafted)):
        return None
    one, other = (_token(session, tokens, place) for tokens in (plain, drafted))
    if one is None or other is None:
        return Divergence(place, one, other, math.inf, 0.0)
    gap, text = _gap(session, plan, plain[:place], one.id, other.id)
    rounding = measure(session, [("race", text)], rows_of([plan.request.k]))
    return Divergence(place, one, other, gap, rounding.limit(session.effective(plan.request)["temperature"]))


def _token(session: Session, tokens: Sequence[int], place: int) -> Token | None:
    return Token(tokens[place], session.piece(tokens[place])) if place < len(tokens) else None


def _gap(session: Session, plan: RacePlan, common: Sequence[int], one: int, other: int) -> tuple[float, KnownText]:
    """How far apart mlx-lm scores the two tokens after the `common` ones, and its own answer up to there."""
    request, positions, gap = replace(plan.plain, max_tokens=len(common) + 1), [], math.inf
    for step in session.plain(plan.ids, request):
        positions.append(Position.of(step))
        gap = abs(step.lead(one) - step.lead(other))
    text = KnownText(plan.ids, positions)
    if text.tokens[:-1] != list(common):  # mlx-lm had left both lanes before: it is asked again, after their words
        step = next(session.plain([*plan.ids, *common], replace(request, max_tokens=1)))
        gap = abs(step.lead(one) - step.lead(other))
    return gap, text
