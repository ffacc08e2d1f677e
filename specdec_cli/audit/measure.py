"""Measure the rounding of a pair's target on known texts. Law: what is measured is the slot that answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from specdec_cli.audit.rounding import Change, Group, Rounding, SeveralRows, difference
from specdec_cli.engine import device
from specdec_cli.engine.rounding import KnownText, Position, mlx_lm_leads, row_leads
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
    read = [position for _, text in texts for position in text.positions]
    largest = max(position.largest_logit for position in read)
    machine: Mapping[int, list[Change]] = {count: [] for count in rows}
    ours: Mapping[int, list[Change]] = {count: [] for count in rows}
    for name, text in texts:
        on_text(name)
        for count in rows:
            theirs = {(found.position, found.row): found.leads for found in mlx_lm_leads(target, text, count)}
            for (position, row), leads in theirs.items():
                change = difference(leads, text.positions[position].leads)
                machine[count].append(Change(name, "repeated", position, row, change))
            for found in row_leads(target, text, count):
                change = difference(found.leads, theirs[found.position, found.row])
                ours[count].append(Change(name, found.reading, found.position, found.row, change))
    passes = [
        SeveralRows(count, Group("mlx-lm", machine[count]), Group("specdec", ours[count]), precision, largest)
        for count in rows
    ]
    return Rounding(precision, len(read), passes, given)


def network_precision(dtype: str) -> str:
    """The precision of products in a network of `dtype`."""
    return device.float32_products() if dtype == "float32" else dtype
