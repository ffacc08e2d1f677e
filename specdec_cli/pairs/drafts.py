"""What drafts for a target: a model, a head, or nothing but its text. Law: no weight is read; a reason stays a reason.

A draft that was asked for fails with its reason. A head that merely lies among the target's files is left alone with a
line that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdec_cli.errors import NotAvailable, Refused
from specdec_cli.kinds import HEAD, DrafterKind
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint
from specdec_cli.models.heads import HeadFiles, find_head, is_for_a_head, read_head
from specdec_cli.pairs.here import model_folder
from specdec_cli.pairs.pair import Pair

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Draft:
    """The `model` or the `head` that drafts, if any. `asked`: what keeps it from drafting is an error."""

    model: Checkpoint | None = None
    head: HeadFiles | None = None
    asked: bool = True


def find_draft(pair: Pair, target: Checkpoint, kind: DrafterKind, tell: Tell = lambda sentence: None) -> Draft:
    """What drafts for `target` when `kind` does: the pair's draft, else a head among the target's own files.

    `tell` hears why a head that nobody asked for does not. Raises: NotAvailable, Refused.
    """
    if pair.draft and (kind.uses_draft or kind.reads_hidden):
        found = read_draft(model_folder(pair, pair.draft, pair.draft_revision), pair.draft, target)
        if found.head or kind.uses_draft:
            return found
    if kind.reads_hidden:
        if head := find_head(target):
            return Draft(head=head)
        raise NotAvailable(
            f"--drafter {kind.name}: {target.name} ({target.model_type}) has no MTP head among its files",
            "give one: --draft FOLDER with a head, or let the text itself draft: --drafter ngram",
        )
    return Draft(head=own_head(target, tell) if kind.mixed else None, asked=False)


def read_draft(folder: Path, name: str, target: Checkpoint) -> Draft:
    """What lies in `folder` as the draft `name` of `target`; a head out of a repository is packed like its target.

    Raises: NotAvailable, Refused.
    """
    if not is_for_a_head(folder, name):
        return Draft(read_checkpoint(folder, name))
    head = read_head(folder, name)
    return Draft(head=head.packed_like(target) if name.startswith(HEAD) else head)


def own_head(target: Checkpoint, tell: Tell = lambda sentence: None) -> HeadFiles | None:
    """The head among the files of `target`, where nobody asked for one; what is wrong with it is only told."""
    try:
        return find_head(target)
    except (NotAvailable, Refused) as error:
        tell(f"no head drafts: {error.message}")
        return None
