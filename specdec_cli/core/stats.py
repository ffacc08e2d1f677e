"""Folds rounds into the figures people quote (pure). Law: a zero denominator gives None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specdec_cli.core.events import Event, Finish, Prefill, Round, RoundDone
from specdec_cli.core.gain import Gain

# What `stats` of a finish event holds by these names, beside what drafting gained.
# fmt: off
FIGURES = (
    "rounds", "emitted_tokens", "draft_n", "draft_n_accepted", "draft_acceptance_rate", "judged_acceptance_rate",
    "mean_acceptance_length", "acceptance_per_position", "accepted_histogram", "rounds_at_k", "drafted_by",
    "accepted_by", "target_passes", "ttft_seconds", "decode_seconds", "tokens_per_second", "draft_seconds",
    "verify_seconds", "draft_prefill_seconds", "total_seconds", "peak_memory_bytes", "plain_step_seconds", "why",
    "measuring_seconds", "draft_read_tokens", "timed_tokens",
)
# fmt: on
GAINS = {"": "speedup", "_low": "low", "_high": "high"}


def ratio(part: float, whole: float) -> float | None:
    """part / whole; None for a zero whole."""
    return part / whole if whole else None


@dataclass(slots=True)
class Stats:
    """Raw counters of one generation; `fold` each round, set the clocks, read `to_dict`.

    `timed_tokens` are those after the first round, whose pass belongs to the prompt: a pace is theirs alone.
    `rounds_at_k[K]` counts the rounds that drafted K tokens. `why` is the reason for the last K, empty for a fixed K.
    `gain` is what drafting gained over plain decoding, with its interval, None where too little was measured to say.
    `drafted_by` and `accepted_by` count draft tokens by who drafted them.
    `draft_read_tokens` of prompt and answer were read by the draft, again included.
    `measuring_seconds` went into plain steps beside the rounds, in neither `decode_seconds` nor any round's.
    """

    rounds: int = 0
    emitted_tokens: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    rejected_n: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    accepted_histogram: list[int] = field(default_factory=list)
    rounds_at_k: list[int] = field(default_factory=list)
    drafted_by: dict[str, int] = field(default_factory=dict)
    accepted_by: dict[str, int] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    ttft_seconds: float | None = None
    decode_seconds: float = 0.0
    draft_prefill_seconds: float = 0.0
    total_seconds: float = 0.0
    peak_memory_bytes: int | None = None
    measuring_seconds: float = 0.0
    draft_read_tokens: int = 0
    timed_tokens: int = 0
    gain: Gain | None = None
    why: str = ""

    def fold(self, round: Round) -> None:
        """Counts one target pass. Only rounds that drafted enter the acceptance figures."""
        self.timed_tokens += len(round.emitted) if self.rounds else 0
        self.rounds += 1
        self.why = round.why
        self.emitted_tokens += len(round.emitted)
        self.draft_n += len(round.draft)
        self.draft_n_accepted += round.accepted
        self.rejected_n += round.rejected is not None
        self.draft_seconds += round.draft_seconds
        self.verify_seconds += round.verify_seconds
        self.draft_prefill_seconds += round.draft_prefill_seconds
        self.draft_read_tokens += round.draft_read_tokens
        _count(self.rounds_at_k, len(round.draft))
        for position in range(len(round.draft)):
            _count(self.drafted_at, position)
            if position < round.accepted:
                _count(self.accepted_at, position)
        if round.draft:
            _count(self.accepted_histogram, round.accepted)
            for counted, tokens in ((self.drafted_by, len(round.draft)), (self.accepted_by, round.accepted)):
                counted[round.drafter] = counted.get(round.drafter, 0) + tokens

    @property
    def target_passes(self) -> int:
        """One for each round, including the first token's."""
        return self.rounds

    @property
    def draft_acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return ratio(self.draft_n_accepted, self.draft_n)

    @property
    def judged_acceptance_rate(self) -> float | None:
        """accepted / (accepted + rejected): the papers' alpha (Leviathan et al. 2023, arXiv:2211.17192)."""
        return ratio(self.draft_n_accepted, self.draft_n_accepted + self.rejected_n)

    @property
    def mean_acceptance_length(self) -> float | None:
        """emitted / target passes: 1 when nothing is accepted, K + 1 when everything is."""
        return ratio(self.emitted_tokens, self.target_passes)

    @property
    def acceptance_per_position(self) -> list[float]:
        """[i] = rounds that accepted position i / rounds that drafted it."""
        accepted = self.accepted_at + [0] * (len(self.drafted_at) - len(self.accepted_at))
        return [a / d for a, d in zip(accepted, self.drafted_at, strict=True)]

    @property
    def tokens_per_second(self) -> float | None:
        """Decode only: tokens after the first round / seconds after it."""
        return ratio(self.timed_tokens, self.decode_seconds)

    @property
    def plain_step_seconds(self) -> float | None:
        """A token by plain decoding at the pace of this reply: what `gain` says of its time a token."""
        if self.gain is None or not self.timed_tokens:
            return None
        return self.gain.speedup * (self.decode_seconds + self.measuring_seconds) / self.timed_tokens

    def to_dict(self) -> dict[str, Any]:
        """The `stats` object of the finish event."""
        found = {name: getattr(self, name) for name in FIGURES}
        gain = {f"estimated_speedup{end}": getattr(self.gain, name, None) for end, name in GAINS.items()}
        shares = {f"break_even_acceptance_rate{end}": getattr(self.gain, f"break_even{end}", None) for end in GAINS}
        return found | gain | shares


@dataclass(slots=True)
class ChatStats:
    """Sums over the replies of a chat.

    `rounds` counts all rounds of all replies; of its clocks only `decode_seconds` is kept, once a reply is over.
    `timed_tokens` are those after the first round of each such reply.
    """

    replies: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_seconds: float = 0.0
    timed_tokens: int = 0
    rounds: Stats = field(default_factory=Stats)
    disk_tokens: int = 0

    def fold(self, event: Event) -> None:
        """Counts one event."""
        match event:
            case Prefill():
                self.prompt_tokens += event.prompt_tokens
                self.cached_tokens += event.cached_tokens
                self.disk_tokens += event.disk_tokens
                self.prefill_seconds += event.seconds
            case RoundDone():
                self.rounds.fold(event.round)
            case Finish():
                self.replies += 1
                self.timed_tokens += event.stats.get("timed_tokens", 0)
                self.rounds.decode_seconds += event.stats.get("decode_seconds", 0.0)
            case _:
                pass

    @property
    def tokens_per_second(self) -> float | None:
        """Decode only: tokens after the first round of each reply / seconds after it."""
        return ratio(self.timed_tokens, self.rounds.decode_seconds)


def _count(histogram: list[int], index: int) -> None:
    """histogram[index] += 1, growing the list with zeros."""
    histogram.extend([0] * (index + 1 - len(histogram)))
    histogram[index] += 1
