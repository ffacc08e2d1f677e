"""What a race asks of both lanes (pure). Law: both write the same text, or the race is refused before it starts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specdec_cli.errors import UsageError
from specdec_cli.kinds import COUPLED, DEFAULT_RULE, NONE
from specdec_cli.race.lanes import TURN_SECONDS
from specdec_cli.request import Request


@dataclass(frozen=True, slots=True)
class RacePlan:
    """The drafted lane's `request`; `ids` is the prompt as tokens, `prompt` as text, continued as it is if `raw`."""

    request: Request
    ids: Sequence[int]
    prompt: str
    raw: bool = False
    turn_seconds: float = TURN_SECONDS

    @property
    def plain(self) -> Request:
        """The same request with nothing drafted."""
        return replace(self.request, k=0, drafter=NONE.name)


def same_text(request: Request, temperature: float) -> Request:
    """`request` such that what is drafted cannot change its text: above temperature 0 coupled, under a seed.

    Raises: UsageError for another rule: under it every draft makes a text of its own.
    """
    if temperature == 0.0:
        return request
    if request.rule not in (DEFAULT_RULE, COUPLED.name):
        raise UsageError(
            f"--rule {request.rule} at temperature {temperature:g} gives each lane a text of its own",
            "leave --rule out: a race uses coupled, one seed for both lanes; or --temp 0",
        )
    seed = secrets.randbits(31) if request.seed is None else request.seed
    return replace(request, rule=COUPLED.name, seed=seed)
