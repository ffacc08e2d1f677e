"""Plain lines of a server (pure). Law: a line a reply, figures only; no word of a prompt or an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_cli.format import count, percent, speed

WORDS = {200: "", 499: " left", 503: " cut short"}


def started_lines(name: str, url: str, wants_key: bool) -> list[str]:
    """Where the server is, and how to go on."""
    door = "whoever has its key" if wants_key else "this machine only"
    return [
        f"{name} serves {door}. OpenAI's clients take {url}/v1,",
        f"Anthropic's, llama.cpp's and any browser (for a chat) {url}",
        "Ctrl-C ends it; specdec help serve says what each client wants",
    ]


def reply_line(clock: str, facts: Mapping[str, Any], width: int | None = None) -> str:
    """One reply: when, what, how much was read and written, how fast, how well was drafted.

    Where `width` cells are too few for all of it, the words that the figures can do without are left out.
    """
    line = _reply_line(clock, facts)
    for word in (" tokens", " token", " accepted") if width is not None else ():
        if len(line) <= (width or 0):
            break
        line = line.replace(word, "", 1)
    return line


def _reply_line(clock: str, facts: Mapping[str, Any]) -> str:
    status = WORDS.get(facts["status"], f" {facts['status']}")
    said = [f"{clock} {str(facts['path']).removeprefix('/').removeprefix('v1/')}{status}"]
    if facts["emitted_tokens"]:
        reused = f" ({facts['cached_tokens']} reused)" if facts["cached_tokens"] else ""
        said.append(f"{facts['prompt_tokens']}{reused} → {count(facts['emitted_tokens'], 'token')}")
    if facts["tokens_per_second"]:
        said.append(speed(facts["tokens_per_second"]))
    if facts["draft_n"]:
        said.append(f"{percent(facts['draft_n_accepted'] / facts['draft_n'])} accepted")
    failed = [f"{what}: {facts[name]}" for name, what in (("refused", "refused"), ("failure", "failed")) if facts[name]]
    return "  ".join([*said, f"{facts['seconds']:.1f} s", *failed])
