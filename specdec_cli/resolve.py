"""From the command line's names to a pair. Law: it says which pair speaks, and why, whenever nobody named one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec_cli.errors import UsageError
from specdec_cli.matching import compatible_draft
from specdec_cli.pairs import DEMO, Pair
from specdec_cli.shelf import is_downloaded, registry


@dataclass(frozen=True, slots=True)
class Resolved:
    """The pair, and one line on how it came to be chosen; empty where it was named."""

    pair: Pair
    reason: str = ""
    drafter: str = "model"


def resolve_pair(
    name: str | None,
    target: str | None,
    draft: str | None,
    target_revision: str | None = None,
    draft_revision: str | None = None,
    *,
    here: bool = False,
) -> Resolved:
    """--target and --draft, else --pair, else the user's default pair, else the demo pair.

    A target alone gets the draft that a known pair lists for it; with `here` only one that needs no download, and
    else one of the cached models whose tokenizer agrees.

    Raises: UsageError for a draft without a target or two targets, NotAvailable for an unknown name.
    """
    if target is None and draft is not None:
        raise UsageError(f"--draft {draft} has no --target to draft for", "name both: --target ID --draft ID")
    if target is not None and name is not None:
        raise UsageError(f"--pair {name} and --target {target} both name a target", "give one of the two")
    known = registry()
    if target is None:
        if name is not None:
            return Resolved(_pinned(known.find(name), target_revision, draft_revision))
        if known.default_pair is not None:
            return Resolved(_pinned(known.find(known.default_pair), target_revision, draft_revision))
        return Resolved(_pinned(known.find(DEMO), target_revision, draft_revision), "no pair was named")
    pair = Pair(
        target.rstrip("/").rsplit("/", 1)[-1],
        target,
        draft,
        target_revision=target_revision,
        draft_revision=draft_revision,
    )
    if draft is not None:
        return Resolved(pair)
    listed = next((p for p in known.pairs.values() if p.target == target and p.draft), None)
    if listed is not None and (not here or is_downloaded(listed.draft, listed.draft_revision)):
        chosen = replace(pair, draft=listed.draft, draft_revision=listed.draft_revision, k=listed.k)
        return Resolved(chosen, f"draft {listed.draft}: pair {listed.name} lists it for this target")
    found = compatible_draft(target, target_revision) if here else None
    if found is not None:
        return Resolved(replace(pair, draft=found), f"draft {found}: in the model cache, and its tokenizer agrees")
    return Resolved(pair, "no draft is known for this target, so its own text drafts: --drafter ngram", "ngram")


def _pinned(pair: Pair, target_revision: str | None, draft_revision: str | None) -> Pair:
    """The pair, at these revisions where they are given: flags come before models.toml."""
    return replace(
        pair,
        target_revision=target_revision or pair.target_revision,
        draft_revision=draft_revision or pair.draft_revision,
    )
