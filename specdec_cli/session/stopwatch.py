"""Time of one reply among several that take turns. Law: its rounds are billed for nobody else's."""

from __future__ import annotations

from specdec_cli.engine.pipeline import Clock


class Stopwatch:
    """A clock that runs only inside its own context: it stands still while others have their turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._kept + (0.0 if self._since is None else self._clock() - self._since)

    def __enter__(self) -> Stopwatch:
        self._since = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept, self._since = self(), None
