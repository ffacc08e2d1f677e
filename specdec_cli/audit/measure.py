"""Measure the rounding of a pair's target on known texts. Law: what is measured is the slot that answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from specdec_cli.audit.change import Change, SeveralRows, difference
from specdec_cli.audit.rounding import Noise, Rounding
from specdec_cli.engine import device
from specdec_cli.engine.rounding import KnownText, Position, float32_leads, row_gaps
from specdec_cli.request import Request
from specdec_cli.session.session import Session

OnText = Callable[[str], None]
# What `auto` is measured with: 4 drafted tokens, and 8, the most that it drafts from a model.
AUTO_ROWS = (5, 9)


def rows_of(ks: Collection[int | Literal["auto"]]) -> list[int]:
    """Rows of the passes that verify `ks` drafted tokens."""
    return sorted({rows for k in ks for rows in (AUTO_ROWS if k == "auto" else (k + 1,))})


def plain_text(session: Session, prompt: Sequence[int], request: Request) -> KnownText:
    """The answer of mlx-lm's own plain decoding to `prompt`. Raises: DoesNotFit for a prompt that fills the context."""
    return KnownText(prompt, [Position.of(step) for step in session.plain(prompt, request)])


def measure(
    session: Session,
    texts: Sequence[tuple[str, KnownText]],
    rows: Sequence[int],
    given: float | None = None,
    on_text: OnText = lambda _: None,
) -> Rounding:
    """The rounding of `session`'s target on `texts` (name, text), in passes of each of `rows` rows.

    `given` replaces the limit of a near-tie. `on_text` is called with each name before its text is read. What the
    session's target has read is replaced.
    """
    target, precision = session.slot.target, network_precision(session.dtype)
    errors: list[float] = []
    changes: Mapping[int, list[Change]] = {count: [] for count in rows}
    for name, text in texts:
        on_text(name)
        if session.dtype != "float32":
            wide = float32_leads(target.network, text)
            for position, leads in zip(text.positions, wide, strict=bool(wide)):
                errors += map(difference, position.leads, leads)
        for count in rows:
            for found in row_gaps(target, text, count):
                change = difference(found.gap, text.positions[found.position].leads[0])
                changes[count].append(Change(name, found.reading, found.position, found.row, change))
    read = [position for _, text in texts for position in text.positions]
    largest = max(position.largest_logit for position in read)
    passes = [SeveralRows(count, found) for count, found in changes.items()]
    return Rounding(precision, len(read), largest, Noise.of(errors), passes, given)


def network_precision(dtype: str) -> str:
    """The precision of products in a network of `dtype`."""
    return device.float32_products() if dtype == "float32" else dtype
