"""What of a pair is on this machine, and what of it drafts. No weight is read.

A draft that was asked for fails with its reason. A head that merely lies among the target's files is left alone with a
line that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_cli import hub
from specdec_cli.errors import NotAvailable, PartlyHere, Refused
from specdec_cli.kinds import HEAD, DrafterKind
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint
from specdec_cli.models.heads import HeadFiles, find_head, is_for_a_head, is_head_only, read_head
from specdec_cli.pairs.catalog import can_be_pulled, is_local, network_forbidden, registry
from specdec_cli.pairs.pair import Pair


def model_folder(pair: Pair, name: str, revision: str | None) -> Path:
    """Where `name`, a model of `pair`, is.

    Raises: NotAvailable; for a pair as models.toml lists it with the pull of the whole pair.
    """
    try:
        return hub.locate(name, revision)
    except NotAvailable as error:
        if not can_be_pulled(error) or isinstance(error, PartlyHere) or pair.source == "command line":
            raise
        known = registry()
        if known.pairs.get(pair.name, pair).models != pair.models:  # at other revisions
            raise
        default = known.default_pair == pair.name
        other = ", or another default: specdec pairs use NAME" if default else ""
        which = f"the default pair {pair.name}" if default else f"pair {pair.name}"
        raise type(error)(f"{which} is not here: {error.message}", f"specdec pull {pair.name}{other}") from error


@contextmanager
def explain_offline(offline: bool) -> Iterator[None]:
    """Where a pull would bring what is missing, and the network is forbidden, the error says that instead."""
    try:
        yield
    except NotAvailable as error:
        if not (can_be_pulled(error) and (offline or network_forbidden())):
            raise
        by, hint = "HF_HUB_OFFLINE", "unset HF_HUB_OFFLINE"
        if offline:
            by, hint = "--offline", "leave out --offline, or unset SPECDEC_OFFLINE"
        raise type(error)(f"{error.message}, and {by} forbids asking the Hub", hint) from error


def name_to_keep(name: str) -> str:
    """A model's name as models.toml keeps it: a folder by its whole path, so that it is found from anywhere.

    Raises: NotAvailable for a folder that does not exist, or that holds no model.
    """
    if not is_local(name) or name.startswith(HEAD):
        hub.require_hub_id(name.removeprefix(HEAD))
        return name
    folder = hub.locate(name)
    read_checkpoint(folder, name, weights=False, heads=is_head_only(folder))
    return name if name.startswith(hub.SHIPPED) else str(Path(name).expanduser().absolute())


Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Draft:
    """The `model` or the `head` that drafts, if any. `asked`: what keeps it from drafting is an error."""

    model: Checkpoint | None = None
    head: HeadFiles | None = None
    asked: bool = True

    def reading(self, recent: int | None) -> Draft:
        """The same, which reads the last `recent` tokens of a context at most; None: all of it."""
        model, head = self.model and self.model.as_draft(recent), self.head and replace(self.head, recent=recent)
        return replace(self, model=model, head=head)


def find_draft(pair: Pair, target: Checkpoint, kind: DrafterKind, tell: Tell = lambda sentence: None) -> Draft:
    """What drafts for `target` when `kind` does: the pair's draft, else a head among the target's own files.

    `tell` hears why a head that nobody asked for does not. Raises: NotAvailable, Refused.
    """
    if pair.draft and (kind.uses_draft or kind.reads_hidden):
        found = read_draft(model_folder(pair, pair.draft, pair.draft_revision), pair.draft, target)
        if found.head or kind.uses_draft:
            return found.reading(pair.recent)
    if kind.reads_hidden:
        if head := find_head(target):
            return Draft(head=head).reading(pair.recent)
        raise NotAvailable(
            f"--drafter {kind.name}: {target.name} ({target.model_type}) has no MTP head among its files",
            "give one: --draft FOLDER with a head, or let the text itself draft: --drafter ngram",
        )
    return Draft(head=own_head(target, tell) if kind.mixed else None, asked=False).reading(pair.recent)


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
