"""Which pair do these names mean, and which is to be recommended? What nobody named comes with its reason."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_cli import hub
from specdec_cli.core.errors import NoPair, NotAvailable, SpecdecError, UsageError
from specdec_cli.core.format import size
from specdec_cli.core.kinds import LOOKUP
from specdec_cli.core.progress import OnStep, unseen
from specdec_cli.pairs.catalog import (
    downloaded,
    fits,
    from_anywhere,
    is_downloaded,
    is_local,
    network_forbidden,
    other_rows,
    registry,
    size_bytes,
)
from specdec_cli.pairs.drafts import FoundDraft, compared, find_drafts
from specdec_cli.pairs.files import find
from specdec_cli.pairs.names import settle
from specdec_cli.pairs.pair import DEMO, Pair, PairRow, PairSpec, Registry
from specdec_cli.system.machine import physical_bytes

NOBODY_NAMED = f"no pair was named, so this is the {DEMO} pair; specdec pairs lists the others"
# What a pair says besides its models, and holds for these two.
OF_BOTH = ("k", "drafter", "draft_context", "stop_repetition")


def choose(
    name: str | None,
    target: str | None,
    draft: str | None,
    *,
    here: bool = False,
    report: OnStep = unseen,
) -> PairSpec:
    """--target and --draft, else --pair, else the user's default pair, else the demo pair.

    A `name` that no pair has, and that is a Hub id or an existing folder, is a target.
    A draft beside --pair takes the place of that pair's draft. A target alone, given or a pair's, takes the draft that
    a known pair lists for it, else the head among its files, else the only model here that can draft. With `here` no
    draft may need a download.
    Raises: UsageError for a draft without a target, or for two targets; NotAvailable for an unknown name.
    """
    if target is None and name is None and draft is not None:
        option = shlex.join(["--draft", draft])
        raise UsageError(f"{option} has no target to draft for", f"name one: --target ID {option}, or --pair NAME")
    if target is not None and name is not None:
        raise UsageError(f"--pair {name} and --target {target} both name a target", "give one of the two")
    known = registry()
    if name is not None and name not in known.pairs:
        name = settle(name)
        name, target = (None, name) if "/" in name or is_local(name) else (name, None)
    target, draft = (one and settle(one) for one in (target, draft))
    if target is not None:
        pair = Pair(Path(from_anywhere(target)).name, target, draft)
        return PairSpec(pair) if draft is not None else with_draft(pair, known, here, report=report)
    pair = known.find(name or known.default_pair or DEMO)
    if draft is not None:  # of another draft neither K nor size is known
        names = "name", "target", "target_revision", "target_adapter", "stop_repetition"
        pair = Pair(draft=draft, **{name: getattr(pair, name) for name in names})
    named = name is not None or known.default_pair is not None
    if pair.has_target_alone:  # what it says of K and draft context holds for any draft
        found = with_draft(pair, known, here, report=report)
        own = {said: getattr(pair, said) for said in OF_BOTH}
        return replace(found, pair=replace(found.pair, **own), named=named)
    return replace(PairSpec.of(pair), reason="" if named else NOBODY_NAMED, named=named)


def with_draft(
    pair: Pair,
    known: Registry,
    here: bool = True,
    models: Sequence[hub.FoundModel] | None = None,
    report: OnStep = unseen,
) -> PairSpec:
    """`pair`, which has a target alone, with a draft that is found for it; else drafts are looked up in the text.

    Several that are here are offered. `models` are those that are here, looked for where they are not given; `report`
    hears how many were compared.
    """
    target = from_anywhere(pair.target)  # as pairs are kept, which is seldom as it was typed
    listed = next((p for p in known.pairs.values() if hub.same_model(p.target, target) and p.draft), None)
    if listed is not None and (not here or is_downloaded(listed.draft, listed.draft_revision)):
        measured = {name: getattr(listed, name) for name in ("draft", "draft_revision", *OF_BOTH)}
        why = f"draft {listed.draft}: pair {listed.name} lists it for this target"
        return replace(PairSpec.of(replace(pair, **measured)), reason=why)
    found: list[FoundDraft] = []
    # What a download may mend is not refused before it.
    with nullcontext() if here else suppress(SpecdecError):
        if here or is_downloaded(pair.target, pair.target_revision):
            files = find(PairSpec(pair))
            if files.draft:
                return PairSpec(pair, reason="the MTP head among the target's own files drafts")
            found = find_drafts(files.target.checkpoint, hub.models_here() if models is None else models, report)
            beside = files.target.weight_bytes
            drafted = replace(pair, draft=pair.target)  # whichever it is
            found = [draft for draft in found if fits(drafted, beside + draft.model.size_bytes)]
    if len(found) == 1:
        model = found[0].model
        why = f"draft {model.target}: in {model.place}, {found[0].smaller}, and its tokenizer agrees"
        return PairSpec(replace(pair, draft=model.target), reason=why)
    several = f"add a draft that is here: {' or '.join(draft.option for draft in found[:MOST_OFFERED])}; until then"
    why = f"{several if found else NO_DRAFT} its own text drafts: --drafter {LOOKUP.name}"
    return PairSpec(pair, LOOKUP.name, why)


MOST_OFFERED = 3
NO_DRAFT = "no draft is known for this target, so"


def drafted(rows: Sequence[PairRow], known: Registry, report: OnStep = unseen) -> list[PairRow]:
    """`rows`, those of targets alone with the draft that is found here; their notes say why, or which there are.

    Of a draft that is listed it is said whether its tokenizer is another. `report` hears how many were compared.
    """
    found, models = [], hub.models_here()
    for row in rows:
        with suppress(SpecdecError):  # whoever loads it is told
            if row.downloaded and row.pair.has_target_alone:
                spec = with_draft(row.pair, known, models=models, report=report)
                note = row.pair.note if spec.reason.startswith(NO_DRAFT) else spec.reason
                row = replace(row, pair=replace(spec.pair, note=note))
            elif row.downloaded:
                row = replace(row, tokenizers=compared(find(PairSpec.of(row.pair))))
        found.append(row)
    return found


def fitting(known: Registry) -> list[Pair]:
    """Pairs with a stated minimum memory that fit this machine, the one to recommend first.

    Those whose ids rest on one source come last; then the largest minimum comes first, of equals the first listed.
    """
    stated = [pair for pair in known.pairs.values() if pair.name != DEMO and pair.min_memory_gb]
    found = [pair for pair in stated if fits(pair, size_bytes(pair, estimate=True))]
    return sorted(found, key=lambda pair: (pair.one_source, -(pair.min_memory_gb or 0)))


def recommended(known: Registry) -> Pair:
    """The first of those that fit. Raises: NotAvailable if even the smallest needs more memory."""
    if found := fitting(known):
        return found[0]
    raise NotAvailable(
        f"no listed pair is known to fit {physical_bytes() / 1e9:.1f} GB", "name one: specdec pull --target ID"
    )


def no_pair() -> NoPair:
    """The error where only the demo pair could answer: it tells how to get a pair, and what is here, or the demo."""
    step = first_step(registry())
    here = [row for row in other_rows(registry(), ()) if row.downloaded and row.fits]
    other = "see it work without a download: specdec demo"
    if here and step.command[:1] != ("pairs",):
        other = f"what is here: -p {shlex.quote(max(here, key=lambda row: row.size_bytes or 0).pair.name)}"
    return NoPair(f"{step.hint}; or {other}", step.question, step.command)


@dataclass(frozen=True, slots=True)
class FirstStep:
    """How to begin: `hint` is for the error; `question` asks on its last line, and a yes runs `command`."""

    hint: str
    question: str = ""
    command: tuple[str, ...] = ()


def _names(pair: Pair) -> str:
    return " + ".join(name for name, _ in pair.models)


def first_step(known: Registry) -> FirstStep:
    """The first step with the default pair, else with one that is on this machine, else with the recommended one."""
    default = known.default_pair
    if default is not None and default != DEMO:
        return FirstStep(f"specdec race -p {shlex.quote(default)} 'Why is the sky blue?'")
    fit = fitting(known)
    if here := next((pair for pair in fit if downloaded(pair)), None):
        question = f"On this machine: {here.name}\n  {_names(here)}\nUse it from now on?"
        return FirstStep(f"specdec pairs use {here.name}, which is here", question, ("pairs", "use", here.name))
    if not fit:
        return FirstStep("specdec pull --target ID")
    total = size_bytes(fit[0], estimate=True)
    about = f"{fit[0].name}, {size(total)}" if total else fit[0].name
    if network_forbidden():
        return FirstStep(f"specdec pull ({about}), with the network")
    free = size(hub.free_bytes())
    question = f"Recommended for this machine: {about}; free on disk: {free}\n  {_names(fit[0])}\nDownload it now?"
    return FirstStep(f"specdec pull ({about})", question, ("pull", fit[0].name))
