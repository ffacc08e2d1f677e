"""Stop strings over a stream of text (pure). Law: no part of a stop string is ever shown, however tokens split it."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Feed decoded text as it comes; what could still become a stop string is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string was completed). After a stop nothing more is shown."""
        self._held += text
        # The one completed first wins, as if text came character by character; then the longest.
        hits = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if hits:
            shown, self._held = self._held[: min(hits)[1]], ""
            return shown, True
        keep = max((overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def finish(self) -> str:
        """What was held back and never became a stop string."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
