"""A pair in memory, as a chat has one, and how it names itself in a transcript."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specdec_cli.hub import locate
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.session import Session


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pair in memory; `drafter` names the drafter used while drafting is on."""

    pair: Pair
    session: Session
    drafter: str

    @property
    def summary(self) -> str:
        """The pair with its models, in one line."""
        target, draft = self.session.names
        who = f"its own head ({self.session.pair.head_kind})" if draft == target else f"draft {draft}"
        return f"{self.pair.name}: target {target}, {who if draft else 'no draft'}"

    def to_dict(self) -> dict[str, Any]:
        """The pair in a transcript; a revision is a commit where one is known."""
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
    """The commit of a cached snapshot, from the name of its folder; else the pinned revision."""
    folder = locate(name, pinned)
    return folder.name if folder.parent.name == "snapshots" else pinned
