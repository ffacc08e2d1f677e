"""How many tokens to draft next. 0 is a legal answer and means plain decoding."""

from __future__ import annotations

from typing import ClassVar, Protocol

from specdec_cli.engine.draft_length.acceptance import Acceptance
from specdec_cli.events import Round
from specdec_cli.gain import expected_tokens
from specdec_cli.kinds import learns_from


class DraftLength(Protocol):
    """Chooses K for each round from what earlier rounds showed."""

    @property
    def released(self) -> bool:
        """Whether the drafter may give its memory back: nothing will be drafted for hundreds of tokens."""

    @property
    def reason(self) -> str:
        """The reason of the last `next`, with its figures; empty where K is fixed."""

    def next(self) -> int:
        """K of the next round. Plain rounds ask one round ahead, so that the device never waits."""

    def lookup_k(self, rates: list[float]) -> int:
        """K of a lookup in place of `next`; 0: none this round.

        rates[i] = P(looked-up token i + 1 is accepted | those before it were).
        """

    def observe(self, round: Round) -> None:
        """Learn from a finished round."""


class Fixed:
    """The same K every round. A lookup may take the round where more of its tokens should be accepted."""

    released: ClassVar[bool] = False
    reason: ClassVar[str] = ""

    def __init__(self, k: int) -> None:
        self.k = k
        self._acceptance = Acceptance()

    def next(self) -> int:
        return self.k

    def lookup_k(self, rates: list[float]) -> int:
        looked_up, drafted = expected_tokens(rates[: self.k]), expected_tokens(self._acceptance.rates(self.k))
        return len(looked_up) - 1 if looked_up[-1] > drafted[-1] else 0

    def observe(self, round: Round) -> None:
        if learns_from(round.drafter):
            self._acceptance.observe(len(round.draft), round.accepted)
