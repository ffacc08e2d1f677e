"""A desk's totals (pure), in the words that llama.cpp's users already chart."""

from __future__ import annotations

from specdec_cli.serve.status import DeskStatus
from specdec_cli.stats import ratio

PREFIX = "llamacpp:"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(status: DeskStatus) -> str:
    """Prometheus' text format."""
    totals = status.totals
    found: list[str] = []
    counters = {
        "prompt_tokens_total": ("Prompt tokens read", totals.read_tokens),
        "prompt_tokens_cached_total": ("Prompt tokens that a cache held", totals.cached_tokens),
        "prompt_seconds_total": ("Seconds spent reading prompts", totals.prompt_seconds),
        "tokens_predicted_total": ("Tokens generated", totals.generated_tokens),
        "tokens_predicted_seconds_total": ("Seconds spent generating", totals.timed_seconds),
        "n_decode_total": ("Target passes", totals.passes),
        "spec_decode_num_drafts_total": ("Rounds that drafted", totals.drafts),
        "spec_decode_num_draft_tokens_total": ("Tokens drafted", totals.draft_tokens),
        "spec_decode_num_accepted_tokens_total": ("Drafted tokens accepted", totals.accepted_tokens),
    }
    for name, (about, value) in counters.items():
        found += [*_head(name, about, "counter"), f"{PREFIX}{name} {value:.10g}"]
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    found += _head(name, "Drafted tokens accepted, by position in the draft", "counter")
    found += [f'{PREFIX}{name}{{position="{at}"}} {count}' for at, count in enumerate(totals.accepted_per_position)]
    gauges = {
        "prompt_tokens_seconds": ("Prompt tokens a second", ratio(totals.read_tokens, totals.prompt_seconds)),
        "predicted_tokens_seconds": ("Tokens a second", ratio(totals.timed_tokens, totals.timed_seconds)),
        "requests_processing": ("Requests that run", len(status.running)),
        "requests_deferred": ("Requests that wait", len(status.waiting)),
    }
    for name, (about, gauge) in gauges.items():
        found += [*_head(name, about, "gauge"), f"{PREFIX}{name} {gauge or 0:.10g}"]
    return "\n".join(found) + "\n"


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {about}.", f"# TYPE {PREFIX}{name} {kind}"]
