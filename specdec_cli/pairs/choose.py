"""Which pair do these names mean, and which is to be recommended? What nobody named comes with its reason."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace

from specdec_cli import hub
from specdec_cli.core.errors import NoPair, NotAvailable, SpecdecError, UsageError
from specdec_cli.core.format import size
from specdec_cli.core.kinds import LOOKUP
from specdec_cli.core.progress import OnStep, Step, unseen
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.models.vocab import compare
from specdec_cli.pairs.catalog import (
    confirmed,
    downloaded,
    fits,
    is_downloaded,
    is_local,
    network_forbidden,
    other_rows,
    registry,
    size_bytes,
)
from specdec_cli.pairs.files import read_model, resolve
from specdec_cli.pairs.names import settle
from specdec_cli.pairs.pair import DEMO, Pair, PairSpec, Registry, draft_options
from specdec_cli.system.machine import physical_bytes

NOBODY_NAMED = f"no pair was named, so this is the {DEMO} pair; specdec pairs lists the others"
# What a pair says besides its models, and holds for these two.
OF_BOTH = ("k", "drafter", "draft_context", "stop_repetition")


def choose(
    name: str | None,
    target: str | None,
    draft: str | None,
    target_revision: str | None = None,
    draft_revision: str | None = None,
    *,
    here: bool = False,
    report: OnStep = unseen,
) -> PairSpec:
    """--target and --draft, else --pair, else the user's default pair, else the demo pair.

    A `name` that no pair has, and that is a Hub id or an existing folder, is a target.
    A draft beside --pair takes the place of that pair's draft. A target alone takes the draft that a known pair lists
    for it. With `here` no draft may need a download: where the listed one would, a head among the target's files or a
    cached model whose tokenizer agrees takes its place; `report` hears how many were compared.
    Raises: UsageError for a draft without a target, or for two targets; NotAvailable for an unknown name.
    """
    if target is None and name is None and draft is not None:
        option = shlex.join(draft_options(draft))
        raise UsageError(f"{option} has no target to draft for", f"name one: --target ID {option}, or --pair NAME")
    if target is not None and name is not None:
        raise UsageError(f"--pair {name} and --target {target} both name a target", "give one of the two")
    known = registry()
    if name is not None and name not in known.pairs:
        name = settle(name)
        name, target = (None, name) if "/" in name or is_local(name) else (name, None)
    target, draft = (one and settle(one) for one in (target, draft))
    if target is not None:
        short = target.rstrip("/").rsplit("/", 1)[-1]
        pair = Pair(short, target, draft, target_revision=target_revision, draft_revision=draft_revision)
        return PairSpec(pair) if draft is not None else _with_draft(pair, known, here, report)
    pair = known.find(name or known.default_pair or DEMO)
    if draft is not None:  # of another draft neither K nor size is known
        names = "name", "target", "target_revision", "target_adapter", "stop_repetition"
        pair = Pair(draft=draft, **{name: getattr(pair, name) for name in names})
    pair = replace(
        pair,
        target_revision=target_revision or pair.target_revision,
        draft_revision=draft_revision or pair.draft_revision,
    )
    named = name is not None or known.default_pair is not None
    return replace(PairSpec.of(pair), reason="" if named else NOBODY_NAMED, named=named)


def _with_draft(pair: Pair, known: Registry, here: bool, report: OnStep) -> PairSpec:
    """`pair`, which has a target alone, with a draft that is found for it; else drafts are looked up in the text."""
    listed = next((p for p in known.pairs.values() if hub.same_model(p.target, pair.target) and p.draft), None)
    if listed is not None and (not here or is_downloaded(listed.draft, listed.draft_revision)):
        measured = {name: getattr(listed, name) for name in ("draft", "draft_revision", *OF_BOTH)}
        why = f"draft {listed.draft}: pair {listed.name} lists it for this target"
        return replace(PairSpec.of(replace(pair, **measured)), reason=why)
    if (here or is_local(pair.target) or hub.elsewhere(pair.target)) and resolve(PairSpec(pair)).draft:
        return PairSpec(pair, reason="the MTP head among the target's own files drafts")
    found = compatible_draft(pair.target, pair.target_revision, report) if here else None
    if found is not None:
        why = f"draft {found.name}: in {found.place}, and its tokenizer agrees"
        return PairSpec(replace(pair, draft=found.target), reason=why)
    why = f"no draft is known for this target, so its own text drafts: --drafter {LOOKUP.name}"
    return PairSpec(pair, LOOKUP.name, why)


# Pairs that gain have drafts of about a fifteenth of the target's bytes.
BEST_RATIO = 15.0
LEAST_RATIO = 4.0
MOST_TRIED = 8


def compatible_draft(target_name: str, revision: str | None = None, report: OnStep = unseen) -> hub.FoundModel | None:
    """The model here of the best size whose tokenizer agrees, or None; `report` hears how many were compared.

    Raises: NotAvailable or Refused if the target itself cannot be read.
    """
    from specdec_cli.models.tokenizer import Tokenizer

    target = read_model(target_name, revision)
    tried = _candidates(target)[:MOST_TRIED]
    for number, (found, draft) in enumerate(tried, 1):
        report(Step("comparing tokenizers", number, len(tried), note=found.name))
        tokenizer = Tokenizer.of(target)  # named each time, so that it stays among the two that are kept
        try:
            other = tokenizer.or_of(target, draft)
        except SpecdecError:
            continue
        if compare(tokenizer.table(), other.table()).status != "incompatible":
            return found
    return None


def _candidates(target: Checkpoint) -> list[tuple[hub.FoundModel, Checkpoint]]:
    """Models that are here and small enough, the best size ratio first."""
    found = []
    for model in (model for model in hub.models_here() if not model.problem):
        try:
            draft = read_model(model.target)
        except SpecdecError:
            continue
        ratio = target.loaded_bytes / max(draft.loaded_bytes, 1)
        if model.target != target.name and ratio >= LEAST_RATIO:
            found.append((abs(math.log(ratio / BEST_RATIO)), model.name, model, draft))
    return [(model, draft) for _, _, model, draft in sorted(found, key=lambda entry: entry[:2])]


def fitting(known: Registry) -> list[Pair]:
    """Pairs with a stated minimum memory that this machine has, the one to recommend first.

    Those whose ids rest on one source come last; then the largest minimum comes first, of equals the first listed.
    """
    found = [p for p in known.pairs.values() if p.name != DEMO and p.min_memory_gb and fits(p, None)]
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
    if default not in (None, DEMO):
        return FirstStep(f"specdec race -p {default} 'Why is the sky blue?'")
    fit = fitting(known)
    if here := next((pair for pair in fit if downloaded(pair)), None):
        question = f"On this machine: {here.name}\n  {_names(here)}\nUse it from now on?"
        return FirstStep(f"specdec pairs use {here.name}, which is here", question, ("pairs", "use", here.name))
    if not fit:
        return FirstStep("specdec pull --target ID")
    total = size_bytes(fit[0], confirmed(), estimate=True)
    about = f"{fit[0].name}, {size(total)}" if total else fit[0].name
    if network_forbidden():
        return FirstStep(f"specdec pull ({about}), with the network")
    question = f"Recommended for this machine: {about}\n  {_names(fit[0])}\nDownload it now?"
    return FirstStep(f"specdec pull ({about})", question, ("pull", fit[0].name))
