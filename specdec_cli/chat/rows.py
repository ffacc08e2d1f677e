"""Names and values that commands show. Law: every value is the one in effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_cli.chat.chat import Chat
from specdec_cli.format import count, percent, speed
from specdec_cli.request import flag


def settings_rows(chat: Chat) -> list[tuple[str, str]]:
    """The rows of /show settings."""
    settings, request, limit = chat.settings, chat.request(), chat.context_limit
    off = {"seed": settings.seed, "stop": " ".join(settings.stop) or None}
    return [
        ("pair", chat.loaded.summary),
        ("k", f"{request.k}, drafter {request.drafter}"),
        *((flag(name), f"{value:g}") for name, value in chat.loaded.session.effective(request).items()),
        *((name, "off" if value is None else str(value)) for name, value in off.items()),
        ("rule", settings.rule),
        *([("shape", f"{shape.kind} {' '.join(shape.text.split())}")] if (shape := settings.constraint) else []),
        ("max-tokens", str(settings.max_tokens)),
        ("context", f"{chat.context_tokens} of {'any number of' if limit is None else limit} tokens"),
        ("overflow", settings.overflow),
        ("think", settings.think),
        ("system", chat.conversation.system or "none"),
        ("saved to", str(chat.saved_to or "nothing: /save FILE, or --save FILE for every turn")),
    ]


def stats_rows(figures: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The rows of /stats."""
    if not figures["replies"]:
        return (("replies", "none yet"),)
    tokens, passes = figures["emitted_tokens"], figures["target_passes"]
    drafted = percent(figures["draft_acceptance_rate"])
    read = figures["prompt_tokens"] - figures["cached_tokens"]
    rows = [
        ("replies", str(figures["replies"])),
        ("tokens", f"{tokens} in {count(passes, 'target pass')}, {figures['mean_acceptance_length']:.2f} a pass"),
        ("accepted", f"{drafted} of drafted" if figures["draft_n"] else "nothing drafted"),
        ("pace", f"{speed(figures['tokens_per_second'])} after the first token of each reply"),
        ("prompts", f"{count(figures['prompt_tokens'], 'token')}, {read} of them read, the others were in the cache"),
    ]
    if figures["draft_n"]:
        positions = " ".join(
            f"{place}: {percent(rate)}" for place, rate in enumerate(figures["acceptance_per_position"], 1)
        )
        rows.insert(3, ("by position", positions))
    return tuple(rows)
