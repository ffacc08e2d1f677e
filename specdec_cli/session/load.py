"""From a pair's names to its weights in memory. Law: every refusal comes before any weight is read.

A LoadedPair is shared by all conversations.
"""

from __future__ import annotations

import time
from dataclasses import replace

from specdec_cli import blas
from specdec_cli.engine import device
from specdec_cli.engine.footprint import resident_bytes
from specdec_cli.engine.load import load as load_weights
from specdec_cli.engine.memory import Residency, bound_memory
from specdec_cli.engine.pipeline import Clock
from specdec_cli.errors import NotAvailable, Refused, UsageError
from specdec_cli.hub import locate
from specdec_cli.kinds import DEFAULT_DRAFTER, DRAFTERS, NONE
from specdec_cli.machine import low_power_mode, power_source
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import HeadFiles
from specdec_cli.pairs.drafts import Tell, read_draft
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.resolve import resolve_pair
from specdec_cli.session.cost_file import CostStore, MemoryCostStore
from specdec_cli.session.fingerprint import fingerprint_of
from specdec_cli.session.heads import PROMPTS, load_agreeing_head
from specdec_cli.session.parts import PairFiles, fitting, pair_files, require_draft
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot


def load(
    pair: str | Pair | None = None,
    *,
    target: str | None = None,
    draft: str | None = None,
    drafter: str | None = None,
    reserve_tokens: int | None = None,
    kv_bits: int | None = None,
    costs: CostStore | None = None,
    tell: Tell = lambda sentence: None,
    clock: Clock = time.perf_counter,
) -> LoadedPair:
    """Load a pair: by name, as a Pair, or `target` and `draft` by Hub id or folder; without any, the default pair.

    Nothing is downloaded. The draft is loaded only where `drafter` uses one. `kv_bits` quantizes the KV caches of
    both. `costs` remembers costs from run to run. `tell` hears of a head that does not draft, or is read unlike its
    family. With `reserve_tokens` the pair is refused if it does not fit with caches that long.

    Raises: NotAvailable, Refused, DoesNotFit; UsageError for an unknown drafter.
    """
    if drafter is not None and drafter not in DRAFTERS:
        raise UsageError(f"--drafter {drafter} is unknown", f"known drafters: {', '.join(DRAFTERS)}")
    if not isinstance(pair, Pair):
        resolved = resolve_pair(pair, target, draft, here=drafter != NONE.name)
        pair, drafter = resolved.pair, drafter or resolved.drafter
    parts = pair_files(pair, DRAFTERS[drafter or DEFAULT_DRAFTER], kv_bits, tell)
    if reserve_tokens is not None:
        parts = fitting(parts, reserve_tokens, kv_bits, tell)
    loaded = _with_head(_load(pair, parts, reserve_tokens, kv_bits, costs, clock), parts, tell)
    return replace(loaded, fingerprint=fingerprint_of(loaded.first, parts.target, parts.draft, parts.head))


def beside(loaded: LoadedPair, draft: str, revision: str | None = None) -> LoadedPair:
    """The target of `loaded` with another draft, whose weights are read from `draft`.

    Raises: NotAvailable, Refused.
    """
    target = read_checkpoint(locate(loaded.pair.target, loaded.pair.target_revision), loaded.pair.target)
    found = read_draft(locate(draft, revision), draft, target)
    if found.head:
        return with_head(loaded, found.head, lambda sentence: None)
    assert found.model is not None
    require_draft(found.model, loaded.tokenizer, loaded.names[0], None)
    slot = Slot(loaded.first.target, load_weights(found.model))
    return LoadedPair(
        loaded.pair, (loaded.names[0], found.model.name), loaded.tokenizer, slot, loaded.generation_config
    )


def with_head(loaded: LoadedPair, files: HeadFiles, tell: Tell) -> LoadedPair:
    """The target of `loaded` with the head in `files` as draft, once it has guessed some of the target's words.

    Raises: NotAvailable for files that are wrong, Refused for a head that does not guess.
    """
    prompts = [loaded.message_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
    target = loaded.first.target
    head = load_agreeing_head(files, target, prompts, loaded.tokenizer.stop_tokens, tell)
    return replace(loaded, names=(loaded.names[0], files.name), first=Slot(target, None, head), fingerprint="")


def _with_head(loaded: LoadedPair, parts: PairFiles, tell: Tell) -> LoadedPair:
    """The same with the head in `parts`, if there is one that may draft. Raises: as `load`."""
    if parts.head is None:
        return loaded
    try:
        return with_head(loaded, parts.head, tell)
    except (NotAvailable, Refused) as error:
        if parts.head_asked:
            raise
        tell(f"no head drafts: {error.message}")
        return loaded


def _load(
    pair: Pair,
    parts: PairFiles,
    reserve_tokens: int | None,
    kv_bits: int | None,
    costs: CostStore | None,
    clock: Clock,
) -> LoadedPair:
    """All but the head."""
    target, draft, checkpoints, head = parts.target, parts.draft, parts.checkpoints, parts.head
    bound_memory()
    residency = Residency(lambda context_tokens: resident_bytes(checkpoints, context_tokens, kv_bits, head))
    residency.hold(reserve_tokens or 0)
    loaded = load_weights(target, kv_bits)
    began = clock()
    slot = Slot(loaded, load_weights(draft, kv_bits) if draft else None)
    return LoadedPair(
        pair=pair,
        names=(target.name, draft.name if draft else None),
        tokenizer=parts.tokenizer,
        first=slot,
        generation_config=target.generation_config,
        costs=costs or MemoryCostStore(),
        identity=_identity(pair, kv_bits),
        # A head is never released, so nothing reads it again.
        reload_seconds=clock() - began if draft else 0.0,
        residency=residency,
    )


def _identity(pair: Pair, kv_bits: int | None) -> str:
    """The cost of a round depends on these and on the length of the context."""
    models = " + ".join(f"{name}@{revision or 'latest'}" for name, revision in pair.models)
    power = power_source() + (", low power" if low_power_mode() else "")
    computes = blas.load() or device.backend()
    where = f"{device.device_name()} {computes}, mlx {device.versions()['mlx']}, {power}"
    return f"{models} · kv {kv_bits or 'full'} · {where}"
