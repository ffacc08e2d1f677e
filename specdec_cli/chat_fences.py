"""Messages of several lines between triple quotes (pure)."""

from __future__ import annotations

FENCE = '"""'


def unfenced(text: str) -> str:
    """`text` without the triple quotes around it."""
    inner = text.strip()
    if not inner.startswith(FENCE):
        return text
    return inner.removeprefix(FENCE).removesuffix(FENCE).strip("\n")


def is_open(text: str) -> bool:
    """Whether `text` begins with triple quotes that are not closed yet."""
    inner = text.strip()
    return inner.startswith(FENCE) and not (len(inner) >= 2 * len(FENCE) and inner.endswith(FENCE))
