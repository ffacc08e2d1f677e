"""specdec: speculative decoding you can see.

    import specdec_cli as specdec
    session = specdec.load("demo").session()
    for event in session.reply("Return the lines of a file.", k=4): ...

Importing this imports nothing heavy; a name is imported when it is first used.
"""

from __future__ import annotations

from specdec_cli.version import __version__

TYPE_CHECKING = False  # `typing` is an import of its own, and this one must cost nothing
if TYPE_CHECKING:
    from typing import Any

    from specdec_cli.core.errors import DoesNotFit, NotAvailable, Refused, SpecdecError, UsageError
    from specdec_cli.core.events import Failure, Finish, Prefill, Reading, Round, RoundDone, Start, TokenLogprob
    from specdec_cli.core.request import Constraint, Request
    from specdec_cli.core.stats import Stats
    from specdec_cli.models.tool_calls import ToolCall
    from specdec_cli.pairs.pair import Pair
    from specdec_cli.session.load import load
    from specdec_cli.session.session import LoadedPair, Session
    from specdec_cli.session.slot import Slot

_HOMES = {
    "core.errors": ("DoesNotFit", "NotAvailable", "Refused", "SpecdecError", "UsageError"),
    "core.events": ("Failure", "Finish", "Prefill", "Reading", "Round", "RoundDone", "Start", "TokenLogprob"),
    "models.tool_calls": ("ToolCall",),
    "pairs.pair": ("Pair",),
    "core.request": ("Constraint", "Request"),
    "session.load": ("load",),
    "session.session": ("LoadedPair", "Session"),
    "session.slot": ("Slot",),
    "core.stats": ("Stats",),
}
_HOME = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "Constraint", "DoesNotFit", "Failure", "Finish", "LoadedPair", "NotAvailable", "Pair", "Prefill", "Reading",
    "Refused", "Request", "Round", "RoundDone", "Session", "Slot", "SpecdecError", "Start", "Stats", "TokenLogprob",
    "ToolCall", "UsageError", "__version__", "load",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
