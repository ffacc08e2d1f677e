"""What the demo pair is, said before it answers. Law: whole once a day, on a terminal; else in one line."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_cli.pairs.pair import DEMO

if TYPE_CHECKING:
    from specdec_cli.pairs.resolve import Resolved


def without_reason(found: Resolved) -> Resolved:
    """The demo introduces itself, so that no line need say why it was chosen."""
    return replace(found, reason="") if found.pair.name == DEMO else found


def introduce_demo(name: str, *, shown: bool, plain: bool) -> None:
    """What the pair `name` is, if it is the demo; nothing unless `shown`."""
    if name != DEMO or not shown:
        return
    from specdec_cli.ui.display import print_demo_box, print_demo_line

    stamp = _stamp()
    whole = sys.stderr is not None and sys.stderr.isatty() and not shown_on(stamp, date.today())
    (print_demo_box if whole else print_demo_line)(sys.stderr, plain)
    if whole:
        remember(stamp, date.today())


def _stamp() -> Path:
    import platformdirs

    return platformdirs.user_state_path("specdec") / "demo-shown"


def shown_on(stamp: Path, day: date) -> bool:
    """Whether `stamp` says `day`; an unreadable one says nothing."""
    try:
        return stamp.read_text(encoding="utf-8").strip() == day.isoformat()
    except (OSError, ValueError):
        return False


def remember(stamp: Path, day: date) -> None:
    """A folder that cannot be written only means that the box shows again."""
    with contextlib.suppress(OSError):
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(f"{day.isoformat()}\n", encoding="utf-8")
