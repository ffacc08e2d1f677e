"""Sums over the replies of a chat (pure). Law: raw counters from the events, each ratio in one line."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec_cli.events import Event, Finish, Prefill, RoundDone
from specdec_cli.stats import Stats, ratio


@dataclass(slots=True)
class Tally:
    """`rounds` counts all rounds of all replies; of its clocks only `decode_seconds` is kept."""

    replies: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_seconds: float = 0.0
    rounds: Stats = field(default_factory=Stats)

    def fold(self, event: Event) -> None:
        """Counts one event."""
        match event:
            case Prefill():
                self.prompt_tokens += event.prompt_tokens
                self.cached_tokens += event.cached_tokens
                self.prefill_seconds += event.seconds
            case RoundDone():
                self.rounds.fold(event.round)
            case Finish():
                self.replies += 1
                self.rounds.decode_seconds += event.stats.get("decode_seconds", 0.0)
            case _:
                pass

    @property
    def cached_share(self) -> float | None:
        """Prompt tokens that were still in the target's cache / all prompt tokens."""
        return ratio(self.cached_tokens, self.prompt_tokens)

    @property
    def tokens_per_second(self) -> float | None:
        """Decode only: tokens after the first of each reply / seconds after the first."""
        return ratio(max(self.rounds.emitted_tokens - self.replies, 0), self.rounds.decode_seconds)
