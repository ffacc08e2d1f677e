"""What the demo pair is, said before it answers. Law: whole once a day, on a terminal; else in one line."""

from __future__ import annotations

import contextlib
import sys
from datetime import date
from pathlib import Path

from specdec_cli.cli.options import DisplayOptions


def introduce_demo(display: DisplayOptions) -> None:
    """Nothing under -q and --json."""
    if not display.notices:
        return
    from specdec_cli.ui.display import print_demo_box, print_demo_line

    stamp = _stamp()
    whole = sys.stderr is not None and sys.stderr.isatty() and not shown_on(stamp, date.today())
    (print_demo_box if whole else print_demo_line)(sys.stderr, display.plain)
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
