"""Totals of all answers (pure), in the words that llama.cpp's users already chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec_cli.serve.http.answer import Answer
from specdec_cli.serve.job import Health

PREFIX = "llamacpp:"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Totals:
    """Sums over finished answers; `requests` counts replies by status."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    passes: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_at: list[int] = field(default_factory=list)
    requests: dict[int, int] = field(default_factory=dict)

    def count(self, answers: Sequence[Answer], status: int) -> None:
        """Take a reply in."""
        self.requests[status] = self.requests.get(status, 0) + 1
        for answer in answers:
            self._count(answer)

    def _count(self, answer: Answer) -> None:
        if answer.prefill is not None:
            self.prompt_tokens += len(answer.prompt) - answer.cached
            self.cached_tokens += answer.cached
            self.prompt_seconds += answer.prefill.seconds
        stats = answer.stats
        self.predicted_tokens += answer.emitted
        self.predicted_seconds += stats.get("decode_seconds") or 0.0
        self.passes += stats.get("target_passes", 0)
        self.draft_tokens += stats.get("draft_n", 0)
        self.accepted_tokens += stats.get("draft_n_accepted", 0)
        histogram = stats.get("accepted_histogram", ())
        self.drafts += sum(histogram)
        # Position i was accepted in every round that accepted more than i tokens.
        for position in range(len(histogram) - 1):
            self.accepted_at += [0] * (position + 1 - len(self.accepted_at))
            self.accepted_at[position] += sum(histogram[position + 1 :])

    def lines(self, health: Health) -> str:
        """Prometheus' text format."""
        found: list[str] = []
        counters = {
            "prompt_tokens_total": ("Prompt tokens read", self.prompt_tokens),
            "prompt_tokens_cached_total": ("Prompt tokens that a cache held", self.cached_tokens),
            "prompt_seconds_total": ("Seconds spent reading prompts", self.prompt_seconds),
            "tokens_predicted_total": ("Tokens generated", self.predicted_tokens),
            "tokens_predicted_seconds_total": ("Seconds spent generating", self.predicted_seconds),
            "n_decode_total": ("Target passes", self.passes),
            "spec_decode_num_drafts_total": ("Rounds that drafted", self.drafts),
            "spec_decode_num_draft_tokens_total": ("Tokens drafted", self.draft_tokens),
            "spec_decode_num_accepted_tokens_total": ("Drafted tokens accepted", self.accepted_tokens),
        }
        for name, (about, value) in counters.items():
            found += [*_head(name, about, "counter"), f"{PREFIX}{name} {value:.10g}"]
        name = "spec_decode_num_accepted_tokens_per_pos_total"
        found += _head(name, "Drafted tokens accepted, by position in the draft", "counter")
        found += [f'{PREFIX}{name}{{position="{at}"}} {count}' for at, count in enumerate(self.accepted_at)]
        gauges = {
            "prompt_tokens_seconds": ("Prompt tokens a second", _per(self.prompt_tokens, self.prompt_seconds)),
            "predicted_tokens_seconds": ("Tokens a second", _per(self.predicted_tokens, self.predicted_seconds)),
            "requests_processing": ("Requests that run", health.running),
            "requests_deferred": ("Requests that wait", health.waiting),
        }
        for name, (about, gauge) in gauges.items():
            found += [*_head(name, about, "gauge"), f"{PREFIX}{name} {gauge:.10g}"]
        return "\n".join(found) + "\n"


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {about}.", f"# TYPE {PREFIX}{name} {kind}"]


def _per(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0
