"""From a pair's name to its weights in memory: choose, find, fit, open. Each step is a function that others call alone.

Every refusal comes before any weight is read. A LoadedPair is shared by all conversations.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import size
from specdec_cli.core.kinds import DEFAULT_DRAFTER, DRAFTERS, NONE
from specdec_cli.core.progress import OnStep, unseen
from specdec_cli.core.request import KV_BITS, DraftContext, Request, one_of, require_valid, whole, within
from specdec_cli.engine import device
from specdec_cli.engine.load import load as load_weights
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.timing import pass_seconds
from specdec_cli.engine.translated import TranslatedModel
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.files import DraftHead, Notify, PairFiles, find, unheard
from specdec_cli.pairs.fingerprint import fingerprints
from specdec_cli.pairs.fit import REMEDIES, Fit, Footprint
from specdec_cli.pairs.pair import Pair, PairSpec, require_text
from specdec_cli.pairs.pair import require_valid as require_valid_pair
from specdec_cli.session.cost_file import CostsAtPower, CostStore
from specdec_cli.session.disk_entries import fingerprint
from specdec_cli.session.ready import parts_read, prove, warming
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot
from specdec_cli.system import blas

# Rows of a pass that a usual draft of three tokens asks for.
ROUND_ROWS = 4


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a pair is opened.

    `kv_bits` quantizes the KV caches of both. With `reserve_tokens` it is refused if it does not fit with caches that
    long. The kernels of `request`, or of one by the target's defaults, are compiled beside the reading. `costs`
    remembers costs from run to run. `tell` hears of a head that does not draft, `report` how far the loading is. A
    refusal names no options but `remedies`. `more` is what will be loaded beside the pair.
    """

    reserve_tokens: int | None = None
    kv_bits: int | None = None
    request: Request | None = None
    costs: CostStore | None = None
    tell: Notify = unheard
    report: OnStep = unseen
    clock: Clock = time.perf_counter
    remedies: frozenset[str] = REMEDIES
    more: tuple[Footprint, ...] = ()

    def __post_init__(self) -> None:
        """Raises: UsageError."""
        if self.kv_bits is not None:
            one_of("kv_bits", KV_BITS)(whole("kv_bits", self.kv_bits, KV_BITS[-1]))
        within("reserve_tokens", 0)(self.reserve_tokens)
        require_valid(self.request or Request())


def load(
    pair: str | Pair | None = None,
    *,
    target: str | None = None,
    draft: str | None = None,
    drafter: str | None = None,
    draft_context: DraftContext | None = None,
    **wishes: Any,
) -> LoadedPair:
    """Load a pair: by name, as a Pair, or `target` and `draft` by Hub id or folder; without any, the default pair.

    Nothing is downloaded. The draft is loaded only where `drafter` uses one. Of a context the draft reads the last
    `draft_context` tokens, or `full`; None: as the pair says. `wishes` are those of `Wishes`.
    Raises: NotAvailable, Refused, DoesNotFit; UsageError for an unknown drafter.
    """
    if drafter is not None and drafter not in tuple(DRAFTERS):
        raise UsageError(f"--drafter {drafter} is unknown", f"known drafters: {', '.join(DRAFTERS)}")
    asked = Wishes(**wishes)
    if isinstance(pair, Pair):
        spec = PairSpec(require_valid_pair(pair), drafter or DEFAULT_DRAFTER)
    else:
        for name, value in (("pair", pair), ("target", target), ("draft", draft)):
            require_text(name, value)
        spec = choose(pair, target, draft, here=drafter != NONE.name, report=asked.report)
    return load_spec(replace(spec, drafter=drafter or spec.drafter).reading(draft_context), asked)


def load_spec(spec: PairSpec, wishes: Wishes) -> LoadedPair:
    """The pair that was chosen. Raises: NotAvailable, Refused, DoesNotFit."""
    return load_files(find(spec, wishes.tell), wishes)


def load_files(files: PairFiles, wishes: Wishes) -> LoadedPair:
    """The pair in `files`: its kernels are compiled while it opens, and its head is proved. Raises: as `load_spec`."""
    request, tell = wishes.request or Request(), wishes.tell
    with warming(files, request, tell):
        fit = Fit.of(files, wishes.kv_bits, wishes.remedies).holding(wishes.more).require(wishes.reserve_tokens, tell)
        loaded = open_pair(fit, wishes)
    if isinstance(fit.files.draft, DraftHead):
        loaded = prove(loaded, fit.files.draft, tell, wishes.report)
    for warning in (files.vocab.warning if files.vocab else "", loaded.context.warning(request)):
        if warning:
            tell(warning)
    if not device.wire(weight_bytes := loaded.first.weight_bytes):
        tell(f"SPECDEC_WIRE=1 wires nothing: weights of {size(weight_bytes)} exceed what Metal recommends")
    return loaded


def open_pair(fit: Fit, wishes: Wishes) -> LoadedPair:
    """The pair that fits, its models read; of one whose draft is a head, the target alone. Raises: NotAvailable."""
    files, clock = fit.files, wishes.clock
    pair, target, *drafts = files.spec.pair, *files.checkpoints
    tokenizer = files.tokenizer  # who has none is refused before weights are read
    device.bound_memory()
    device.wire(0)
    read = parts_read(wishes.report, [part.weight_bytes for part in fit.footprints[: 1 + len(drafts)]])
    loaded = load_weights(target, fit.kv_bits, next(read))
    kept: CostStore = {} if wishes.costs is None or device.is_virtual() else CostsAtPower(wishes.costs)
    threads = fit_threads(loaded, kept, alone=target.group is None)
    began = clock()
    draft = as_draft(files, load_weights(drafts[0], fit.kv_bits, next(read)), loaded) if drafts else None
    reload_seconds = clock() - began if drafts else 0.0  # a head is never released, so nothing reads it again
    # The cost of a round depends on these and on the length of the context.
    models = " + ".join(f"{name}@{revision or 'latest'}" for name, revision in pair.models)
    models += "".join(f" adapter {one}" for one in (pair.target_adapter, pair.draft_adapter) if one)
    where = f"{device.device_name()} {blas.load() or device.backend()}, mlx {device.versions()['mlx']}"
    where += f", {threads} of them" if threads else ""
    return LoadedPair(
        pair=pair,
        names=(target.name, drafts[0].name if drafts else None),
        tokenizer=tokenizer,
        first=Slot(loaded, draft),
        fit=fit,
        generation_config=target.generation_config,
        costs=kept,
        identity=f"{models} · kv {fit.kv_bits or 'full'} · draft context {pair.draft_context} · {where}",
        reload_seconds=reload_seconds,
        fingerprint=cache(lambda: fingerprint(numbers_depend_on(files, fit.kv_bits, where))),
    )


def beside(loaded: LoadedPair, pair: Pair) -> LoadedPair:
    """The target of `loaded` with the draft of `pair`, which has the same target. Raises: NotAvailable, Refused."""
    target = loaded.first.target
    fit = Fit.of(find(PairSpec(pair))).require(None, unheard)
    files = fit.files
    if isinstance(files.draft, DraftHead):
        return prove(replace(loaded, fit=fit), files.draft)
    draft = as_draft(files, load_weights(files.checkpoints[1]), target)
    return replace(loaded, pair=pair, names=(loaded.names[0], draft.name), first=Slot(target, draft), fit=fit, costs={})


def as_draft(files: PairFiles, draft: CachedModel, target: CachedModel) -> CachedModel:
    """`draft` as it drafts for `target`: translated, where the tokenizers in `files` differ."""
    if files.vocab is None or files.vocab.status != "translated":
        return draft
    return TranslatedModel.of(draft, files.translation, target.vocab_size)


def fit_threads(target: CachedModel, costs: CostStore, alone: bool, clock: Clock = time.perf_counter) -> int:
    """Let the BLAS multiply with the threads that a plain step and a pass of `ROUND_ROWS` rows take least time with.

    Both are measured once for each machine and doubling of the weights; not where others compute with it, which may
    know the answer. 0: there is nothing to choose.
    """
    counts = blas.thread_counts(target.weight_bytes)
    counts = counts if alone else counts[-1:]
    if not counts:
        return 0

    def seconds(count: int) -> float:
        blas.set_threads(count)
        return pass_seconds(target, 1, clock) + pass_seconds(target, ROUND_ROWS, clock)

    key = f"threads · {device.device_name()} {blas.load()} · 2^{target.weight_bytes.bit_length()} bytes"
    best = (costs.get(key) or {}).get("threads") if len(counts) > 1 else counts[0]
    if best not in counts:
        best = min(counts, key=seconds)
        costs[key] = {"threads": best}
    blas.set_threads(best)
    return best


def numbers_depend_on(files: PairFiles, kv_bits: int | None, where: str) -> dict[str, str]:
    """By name, all that the numbers in a cache depend on; `where` is the device with what computes on it."""
    revisions = " + ".join(f"{name}@{revision}" for name, revision in files.spec.pair.models)
    asked = {"revisions": revisions, "kv bits": str(kv_bits), "draft context": str(files.spec.pair.draft_context)}
    try:
        return fingerprints(files, here=True) | device.versions() | asked | {"device": where}
    except OSError:  # a file is gone since it was read: nothing else has this name
        return {"unknown": secrets.token_hex(16)}
