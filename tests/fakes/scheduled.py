"""A DraftLength that follows a script."""

from collections.abc import Sequence
from typing import ClassVar

from specdec_cli.events import Round


class Scheduled:
    """A DraftLength given beforehand, one K a round; 0 after its end."""

    released: ClassVar[bool] = False
    reason: ClassVar[str] = ""

    def __init__(self, ks: Sequence[int]) -> None:
        self._ks = iter(ks)

    def next(self) -> int:
        return next(self._ks, 0)

    def lookup_k(self, rates: list[float]) -> int:
        return 0

    def observe(self, round: Round) -> None:
        return
