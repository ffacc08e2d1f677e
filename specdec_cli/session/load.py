"""From a pair's names to its weights in memory. Every refusal comes before any weight is read.

A LoadedPair is shared by all conversations.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_cli import blas
from specdec_cli.engine import device
from specdec_cli.engine.device import bound_memory
from specdec_cli.engine.footprint import require_fit
from specdec_cli.engine.heads.cached import CachedHead, Head, output_head_for
from specdec_cli.engine.heads.load import Text, load_agreeing, own_texts
from specdec_cli.engine.heads.shortlist import shortlist_for
from specdec_cli.engine.load import empty_model, require_verifiable
from specdec_cli.engine.load import load as load_weights
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.warmup import compiling, rehearse, rehearse_network
from specdec_cli.errors import DoesNotFit, NotAvailable, Refused, UsageError
from specdec_cli.format import size
from specdec_cli.hub import locate
from specdec_cli.kinds import DEFAULT_DRAFTER, DRAFTERS, NONE, DrafterKind, effective_rule
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint
from specdec_cli.models.heads import HeadFiles
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.vocab import compare
from specdec_cli.pairs.local import Draft, Tell, find_draft, model_folder, read_draft
from specdec_cli.pairs.pair import Pair, require_text
from specdec_cli.pairs.pair import require_valid as require_valid_pair
from specdec_cli.pairs.resolve import resolve_pair
from specdec_cli.request import KV_BITS, DraftContext, Request, one_of, require_valid, whole, within
from specdec_cli.session.cost_file import CostsAtPower, CostStore, power_state
from specdec_cli.session.session import LoadedPair, sampling_of
from specdec_cli.session.slot import Slot


@dataclass(frozen=True, slots=True)
class PairFacts:
    """`names` are the target's and the draft's. `context_limit` in tokens is the tighter one, None being endless."""

    names: tuple[str, str | None]
    tokenizer: Tokenizer
    vocab_size: int
    context_limit: int | None


def pair_facts(pair: Pair, kind: DrafterKind) -> PairFacts:
    """The same of `pair` when `kind` drafts. Raises: NotAvailable, Refused."""
    target = read_checkpoint(model_folder(pair, pair.target, pair.target_revision), pair.target)
    limits, draft = [target.context_limit], None
    if pair.draft and kind.uses_draft:
        folder, draft = model_folder(pair, pair.draft, pair.draft_revision), pair.draft
        if model := read_draft(folder, draft, target).reading(pair.recent).model:
            limits.append(model.context_limit)
    tokenizer = Tokenizer.of(target)
    vocab_size = target.whole("vocab_size", max(tokenizer.table().tokens) + 1)
    limit = min((limit for limit in limits if limit is not None), default=None)
    return PairFacts((target.name, draft), tokenizer, vocab_size, limit)


@dataclass(frozen=True, slots=True)
class PairFiles:
    """What is to be loaded."""

    target: Checkpoint
    tokenizer: Tokenizer
    draft: Draft

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [self.target, self.draft.model] if self.draft.model else [self.target]


def pair_files(target: Checkpoint, draft: Draft, kv_bits: int | None) -> PairFiles:
    """Configurations, tokenizers and headers of all come first."""
    tokenizer = Tokenizer.of(target)
    if draft.model:
        require_draft(draft.model, tokenizer, target, kv_bits)
    return PairFiles(target, tokenizer, draft)


def fitting(parts: PairFiles, reserve_tokens: int, kv_bits: int | None, tell: Tell) -> PairFiles:
    """What fits of `parts`: all of it, or all but a head that nobody asked for. Raises: DoesNotFit."""
    try:
        require_fit(parts.checkpoints, reserve_tokens, kv_bits, parts.draft.head)
    except DoesNotFit as error:
        if parts.draft.head is None or parts.draft.asked:
            raise
        require_fit(parts.checkpoints, reserve_tokens, kv_bits)
        tell(f"no head drafts: {error.message}")
        return replace(parts, draft=Draft())
    return parts


def require_draft(draft: Checkpoint, tokenizer: Tokenizer, target: Checkpoint, kv_bits: int | None) -> None:
    """Raises: NotAvailable, Refused for a draft that cannot run, be verified or share the target's ids."""
    empty_model(draft, kv_bits)
    require_verifiable(draft)
    other = tokenizer.or_of(target, draft)
    if other is not tokenizer:
        verdict = compare(tokenizer.table(), other.table())
        if verdict.status == "incompatible":
            raise verdict.refusal(target.name, draft.name)


# Of a configuration that does not say.
USUAL_VOCABULARY = 1 << 16
# Short, of several kinds, and unlike each other: the target goes on from each.
PROMPTS = (
    "Write a Python function that returns the lines of a file that hold a word.",
    "Tell a short story about a lighthouse keeper who finds a letter.",
    "Explain why the sky is blue to a child.",
    'Continue this JSON: [{"city": "Lima", "country": "Peru"}, {"city": "Oslo",',
)


def load_agreeing_head(
    files: HeadFiles, target: CachedModel, prompts: Sequence[Sequence[int]], stops: frozenset[int], tell: Tell
) -> CachedHead:
    """The head in `files`, in the reading that guesses best what `target` says after `prompts`.

    `tell` hears of a reading that is not its family's.
    Raises: NotAvailable for files that are wrong, Refused for a head that does not guess, or not for this target.
    """
    output_head, texts = output_head_for(target.network, files.name), list[Text]()
    module, found = load_agreeing(files, target, _keep(own_texts(target, prompts, stops), texts))
    files.require_outputs(output_head.vocab_size)
    found.require(files.name, target.name)
    head = Head(module, target.network, files.name, found, recent=files.recent)
    head.shortlist = shortlist_for(head.output_head, texts, stops)
    return CachedHead(head)


def _keep(texts: Iterator[Text], kept: list[Text]) -> Iterator[Text]:
    """`texts`, each of which is in `kept`, too, once it was asked for."""
    for text in texts:
        kept.append(text)
        yield text


def load(
    pair: str | Pair | None = None,
    *,
    target: str | None = None,
    draft: str | None = None,
    drafter: str | None = None,
    reserve_tokens: int | None = None,
    kv_bits: int | None = None,
    draft_context: DraftContext | None = None,
    costs: CostStore | None = None,
    tell: Tell = lambda sentence: None,
    clock: Clock = time.perf_counter,
    request: Request | None = None,
) -> LoadedPair:
    """Load a pair: by name, as a Pair, or `target` and `draft` by Hub id or folder; without any, the default pair.

    Nothing is downloaded. The draft is loaded only where `drafter` uses one. `kv_bits` quantizes the KV caches of
    both. Of a context the draft reads the last `draft_context` tokens, or `full`; None: as the pair says. `costs`
    remembers costs from run to run. `tell` hears of a head that does not draft, or is read unlike its family. With
    `reserve_tokens` the pair is refused if it does not fit with caches that long.
    The kernels of `request`, or of one by the target's defaults, are compiled beside the reading.
    Raises: NotAvailable, Refused, DoesNotFit; UsageError for an unknown drafter.
    """
    if drafter is not None and drafter not in tuple(DRAFTERS):
        raise UsageError(f"--drafter {drafter} is unknown", f"known drafters: {', '.join(DRAFTERS)}")
    if kv_bits is not None:
        one_of("kv_bits", KV_BITS)(whole("kv_bits", kv_bits))
    within("reserve_tokens", 0)(reserve_tokens)
    request = require_valid(request or Request())
    if not isinstance(pair, Pair):
        for name, value in (("pair", pair), ("target", target), ("draft", draft)):
            require_text(name, value)
        resolved = resolve_pair(pair, target, draft, here=drafter != NONE.name)
        pair, drafter = resolved.pair, drafter or resolved.drafter
    if draft_context is not None:
        pair = replace(pair, draft_context=draft_context)
    require_valid_pair(pair)
    kind = DRAFTERS[drafter or DEFAULT_DRAFTER]
    checkpoint = read_checkpoint(model_folder(pair, pair.target, pair.target_revision), pair.target)
    draft_files = find_draft(pair, checkpoint, kind, tell)
    empty_model(checkpoint, kv_bits)
    if kind.drafts:
        require_verifiable(checkpoint)
    with compiling(rehearsal(checkpoint, draft_files, kind, request), tell):
        parts = pair_files(checkpoint, draft_files, kv_bits)
        if reserve_tokens is not None:
            parts = fitting(parts, reserve_tokens, kv_bits, tell)
        loaded = _load(pair, parts, reserve_tokens or 0, kv_bits, costs, clock)
    if parts.draft.head:
        try:
            loaded = with_head(loaded, parts.draft.head, tell)
        except (NotAvailable, Refused) as error:
            if parts.draft.asked:
                raise
            tell(f"no head drafts: {error.message}")
    if not device.wire(weight_bytes := loaded.first.weight_bytes):
        tell(f"SPECDEC_WIRE=1 wires nothing: weights of {size(weight_bytes)} exceed what Metal recommends")
    return replace(loaded, fingerprint=fingerprint_of(loaded.first, parts.target, parts.draft))


def rehearsal(target: Checkpoint, draft: Draft, kind: DrafterKind, request: Request) -> Callable[[], None]:
    """What a reply to `request` does, with `kind` as drafter; the models' passes in small. Raises: UsageError."""
    sampling = sampling_of(target.generation_config, request)
    rule = effective_rule(request.rule, request.seed, sampling.temperature).name
    width, by_network = target.whole("vocab_size", USUAL_VOCABULARY), bool(draft.model or draft.head)

    def work() -> None:
        rehearse(rule, sampling, width, target.computed_dtype or "", by_network, kind.looks_up)
        for model in [target, draft.model] if draft.model else [target]:
            rehearse_network(model)

    return work


def beside(loaded: LoadedPair, draft: str, revision: str | None = None) -> LoadedPair:
    """The target of `loaded` with another draft, whose weights are read from `draft`. Raises: NotAvailable, Refused."""
    target = read_checkpoint(locate(loaded.pair.target, loaded.pair.target_revision), loaded.pair.target)
    found = read_draft(locate(draft, revision), draft, target).reading(loaded.pair.recent)
    if found.head:
        return with_head(loaded, found.head, lambda sentence: None)
    assert found.model is not None
    require_draft(found.model, loaded.tokenizer, target, None)
    names, slot = (loaded.names[0], found.model.name), Slot(loaded.first.target, load_weights(found.model))
    return LoadedPair(loaded.pair, names, loaded.tokenizer, slot, loaded.generation_config)


def with_head(loaded: LoadedPair, files: HeadFiles, tell: Tell) -> LoadedPair:
    """The target of `loaded` with the head in `files` as draft, once it has guessed some of the target's words.

    Raises: NotAvailable for files that are wrong, Refused for a head that does not guess.
    """
    prompts = [loaded.message_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
    target = loaded.first.target
    head = load_agreeing_head(files, target, prompts, loaded.tokenizer.stop_tokens, tell)
    return replace(loaded, names=(loaded.names[0], files.name), first=Slot(target, head), fingerprint="")


def _load(
    pair: Pair, parts: PairFiles, reserve_tokens: int, kv_bits: int | None, costs: CostStore | None, clock: Clock
) -> LoadedPair:
    """All but the head."""
    target, draft = parts.target, parts.draft.model
    bound_memory()
    device.wire(0)
    loaded = load_weights(target, kv_bits)
    blas.fit_threads(loaded.weight_bytes)
    began = clock()
    slot = Slot(loaded, load_weights(draft, kv_bits) if draft else None)
    # The cost of a round depends on these and on the length of the context.
    models = " + ".join(f"{name}@{revision or 'latest'}" for name, revision in pair.models)
    where = f"{device.device_name()} {blas.load() or device.backend()}, mlx {device.versions()['mlx']}"
    return LoadedPair(
        pair=pair,
        names=(target.name, draft.name if draft else None),
        tokenizer=parts.tokenizer,
        first=slot,
        generation_config=target.generation_config,
        costs={} if costs is None or device.is_virtual() else CostsAtPower(costs, power_state()),
        identity=f"{models} · kv {kv_bits or 'full'} · draft context {pair.draft_context} · {where}",
        # A head is never released, so nothing reads it again.
        reload_seconds=clock() - began if draft else 0.0,
    )


# Of how caches are kept in files, and of what specdec's own caches mean: another number is another fingerprint.
SCHEMA = 4


def fingerprint_of(slot: Slot, target: Checkpoint, draft: Draft) -> str:
    """Whose caches they are; those of another fingerprint are never used.

    Of caches like those of `slot`, whose models are in these files: their places, sizes and dates count. So do the
    versions of what computes, the types that it computes in, and who drafts. Raises: OSError.
    """
    models = [target, *([draft.model] if slot.draft and draft.model else [])]
    files = [path for model in models for path in (model.folder / "config.json", *model.weights)]
    files += draft.head.files if slot.draft and draft.head else ()
    parts, versions = [_identity_of(path) for path in files], device.versions()
    for held in (slot.target, slot.draft):
        match held:
            case CachedModel():
                parts.append(f"{held.dtype} {held.network.kv} {held.recent} {held.cache_kinds}")
            case CachedHead(head=head):
                parts.append(f"{head.kind} {head.recent} {head.agreement and head.agreement.zero_centred}")
    parts.append(f"{SCHEMA} mlx {versions['mlx']}, mlx-lm {versions['mlx-lm']}, {device.backend()}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _identity_of(path: Path) -> str:
    """A line that changes with the file's place, size or date. Raises: OSError."""
    real = path.resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"
