"""What an answer is asked for on the command line. Law: a value out of bounds is refused before any model work."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_cli.cli.options import AnswerOptions
from specdec_cli.cli.sampling import SamplingOptions
from specdec_cli.cli.shape import ShapeOptions
from specdec_cli.kinds import DEFAULT_RULE, K
from specdec_cli.request import Constraint, Request, parse_k

if TYPE_CHECKING:
    from specdec_cli.pairs.resolve import Resolved
    from specdec_cli.session.session import Session


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of one answer, read; `k` None is the pair's own draft length."""

    answer: AnswerOptions
    sampling: SamplingOptions
    k: K | None
    values: Mapping[str, float | None]
    bias: tuple[tuple[int, float], ...]
    constraint: Constraint | None = None

    @classmethod
    def of(cls, answer: AnswerOptions, sampling: SamplingOptions, shape: ShapeOptions | None = None) -> Asked:
        """Raises: UsageError for a value out of its bounds, and for a shape that no answer could have."""
        k, values, bias = parse_k(answer.k), sampling.values(), sampling.bias()
        constraint = shape.constraint(tuple(answer.stop or ())) if shape else None
        return cls(answer, sampling, k, values, bias, constraint)

    @property
    def ks(self) -> tuple[K, ...]:
        """The one draft length, if any was asked for."""
        return () if self.k is None else (self.k,)

    def request(self, found: Resolved) -> Request:
        """The same of the pair `found`: what is not given is the pair's own."""
        answer, pair = self.answer, found.pair
        return Request(
            max_tokens=answer.max_tokens,
            stop=tuple(answer.stop or ()),
            k=pair.k if self.k is None else self.k,
            drafter=found.drafter,
            max_context=answer.max_context,
            rule=self.sampling.rule,
            seed=self.sampling.seed,
            sampling=self.values,
            logit_bias=self.bias,
            stop_repetition=pair.stop_repetition if answer.stop_repetition is None else answer.stop_repetition,
            constraint=self.constraint,
        )


def tell_without_effect(session: Session, request: Request, *, shown: bool, plain: bool) -> None:
    """One line on what was asked for and changes nothing in this session, if anything; nothing unless `shown`."""
    from specdec_cli.ui.display import print_notice

    limit, said = session.context_limit(request), []
    if request.max_context is not None and limit is not None and limit < request.max_context:
        said.append(f"--max-context {request.max_context}: the models hold {limit} tokens")
    if request.rule != DEFAULT_RULE and not session.effective(request)["temperature"]:
        said.append(f"--rule {request.rule}: at temperature 0 every rule gives the same text")
    if said and shown:
        print_notice(sys.stderr, f"without effect: {'; '.join(said)}", plain)
