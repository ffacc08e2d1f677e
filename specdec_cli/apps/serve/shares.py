"""The clock by which jobs share the time of one thread: whoever comes, each that runs gets its part (pure).

Law: of any stretch of time a job that stays has its even part but for two turns, however many come and go meanwhile. It
is the virtual time of fair queueing (Demers, Keshav, Shenker 1989): a second of service to one of n jobs moves it by
1/n, which is what each of them should have had of it. It never goes back, so that a chain of short jobs cannot begin
below those who wait, again and again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FairClock:
    """Seconds of service that a job which was always there should have had."""

    now: float = 0.0
    _before: float = 0.0

    def joins_at(self) -> float:
        """What a job that comes counts as having had.

        The clock as it was before the last turn: a head start of one turn.
        """
        return self._before

    def serve(self, seconds: float, jobs: int) -> None:
        """One of the `jobs` that run had a turn of so many seconds."""
        self._before, self.now = self.now, self.now + seconds / jobs
