"""The pair that speaks in a chat. Law: names, drafts and revisions as a transcript needs them, found once per load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specdec_cli.hub import locate
from specdec_cli.pairs import Pair
from specdec_cli.session import Session


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pair in memory; `drafter` is who drafts while drafting is on."""

    pair: Pair
    session: Session
    drafter: str

    @property
    def told(self) -> dict[str, Any]:
        """What a transcript says of it; a revision is a commit where one is known."""
        pair = self.pair
        return {
            "pair": pair.name,
            "target": pair.target,
            "target_revision": _commit(pair.target, pair.target_revision),
            "draft": pair.draft,
            "draft_revision": _commit(pair.draft, pair.draft_revision) if pair.draft else None,
        }


Open = Callable[[Pair, str], Loaded]
"""(pair, drafter) -> loaded. Raises: SpecdecError."""


def _commit(name: str, pinned: str | None) -> str | None:
    """The folder of a cached snapshot is named by its commit."""
    folder = locate(name, pinned)
    return folder.name if folder.parent.name == "snapshots" else pinned
