"""How many tokens to draft next. Law: 0 is a legal answer and means plain decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from specdec_cli.events import Round


class DraftLength(Protocol):
    """Chooses K for each round from what earlier rounds showed."""

    @property
    def resting(self) -> bool:
        """Nothing will be drafted for hundreds of tokens: what the drafter holds may be given back."""

    @property
    def why(self) -> str:
        """The reason of the last `next`, with its figures; empty where K is fixed."""

    def next(self) -> int:
        """K of the next round. Plain rounds ask one round ahead, so that the device never waits."""

    def observe(self, round: Round) -> None:
        """What the round came to."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same K every round."""

    k: int
    resting: ClassVar[bool] = False
    why: ClassVar[str] = ""

    def next(self) -> int:
        return self.k

    def observe(self, round: Round) -> None:
        return
