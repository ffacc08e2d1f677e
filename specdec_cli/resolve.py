"""From the command line's names to a pair. Law: it says which pair speaks, and why, whenever nobody named one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec_cli.errors import UsageError
from specdec_cli.pairs import DEFAULT_K, DEMO, Pair
from specdec_cli.shelf import downloaded, registry


@dataclass(frozen=True, slots=True)
class Resolved:
    """The pair, and one line on how it came to be chosen; empty where it was named."""

    pair: Pair
    reason: str = ""


def resolve_pair(
    name: str | None,
    target: str | None,
    draft: str | None,
    target_revision: str | None = None,
    draft_revision: str | None = None,
) -> Resolved:
    """--target and --draft, else --pair, else the user's default pair, else the demo pair.

    Raises: UsageError for a draft without a target or two targets, NotAvailable for an unknown name.
    """
    if target is None and draft is not None:
        raise UsageError(f"--draft {draft} has no --target to draft for", "name both: --target ID --draft ID")
    if target is not None and name is not None:
        raise UsageError(f"--pair {name} and --target {target} both name a target", "give one of the two")
    known = registry()
    if target is None:
        if name is not None:
            return Resolved(known.find(name))
        if known.default_pair is not None:
            return Resolved(known.find(known.default_pair))
        return Resolved(known.find(DEMO), "no pair was named")
    pair = Pair(
        target.rstrip("/").rsplit("/", 1)[-1],
        target,
        draft,
        DEFAULT_K,
        target_revision=target_revision,
        draft_revision=draft_revision,
    )
    if draft is not None:
        return Resolved(pair)
    listed = next((p for p in known.pairs.values() if p.target == target and p.draft), None)
    if listed is not None and downloaded(replace(listed, target=listed.draft or "")):
        return Resolved(
            replace(pair, draft=listed.draft, k=listed.k), f"draft {listed.draft}: pair {listed.name} lists it"
        )
    return Resolved(pair, "no draft is here for this target, so it decodes plainly")
