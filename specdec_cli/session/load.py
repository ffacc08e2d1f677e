"""From a pair's names to its weights in memory. Every refusal comes before any weight is read.

A LoadedPair is shared by all conversations.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache

from specdec_cli.core.errors import NotAvailable, Refused, SpecdecError, UsageError
from specdec_cli.core.format import size
from specdec_cli.core.kinds import DEFAULT_DRAFTER, DRAFTERS, NONE, effective_rule
from specdec_cli.core.progress import OnStep, Step, unseen
from specdec_cli.core.request import KV_BITS, DraftContext, Request, one_of, require_valid, whole, within
from specdec_cli.engine import device
from specdec_cli.engine.device import bound_memory
from specdec_cli.engine.group import Group
from specdec_cli.engine.heads.cached_head import CachedHead, Head, output_head_for
from specdec_cli.engine.heads.load_head import load_agreeing, own_texts
from specdec_cli.engine.load import load as load_weights
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.timing import pass_seconds
from specdec_cli.engine.translated import TranslatedModel
from specdec_cli.engine.warmup import compiling, warm_up, warm_up_network, warm_up_products
from specdec_cli.models.heads import HeadFiles
from specdec_cli.pairs.check import find_obstacles, memory_obstacle
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.files import DraftHead, Notify, PairFiles, resolve, unheard
from specdec_cli.pairs.fingerprint import fingerprints
from specdec_cli.pairs.pair import Pair, PairSpec, require_text
from specdec_cli.pairs.pair import require_valid as require_valid_pair
from specdec_cli.session.cost_file import CostsAtPower, CostStore, power
from specdec_cli.session.disk_entries import fingerprint
from specdec_cli.session.session import LoadedPair, sampling_of
from specdec_cli.session.slot import Slot
from specdec_cli.system import blas


def usable(
    files: PairFiles, reserve_tokens: int | None, kv_bits: int | None, notify: Notify, machines: int = 1
) -> PairFiles:
    """`files`, less a head that cannot draft here and that nobody asked for.

    Raises: NotAvailable, Refused, DoesNotFit for what keeps the pair from running.
    """
    error = _first_obstacle(files, reserve_tokens, kv_bits, notify, machines)
    if error is None:
        return files
    alone = files.without_unasked_head
    if alone is None or _first_obstacle(alone, reserve_tokens, kv_bits, notify, machines):
        raise error
    notify_without_head(notify, error)
    return alone


def _first_obstacle(
    files: PairFiles, reserve_tokens: int | None, kv_bits: int | None, notify: Notify, machines: int
) -> SpecdecError | None:
    refusal = next(find_obstacles(files, kv_bits, machines), None)
    if refusal is not None or reserve_tokens is None:
        return refusal
    return memory_obstacle(files, reserve_tokens, kv_bits, notify, machines)


def notify_without_head(notify: Notify, error: SpecdecError) -> None:
    notify(f"no head drafts: {error.message}")


# Of a configuration that does not say.
USUAL_VOCABULARY = 1 << 16
# Rows of a pass that a usual draft of three tokens asks for.
ROUND_ROWS = 4
# Short, of several kinds, and unlike each other: the target goes on from each.
PROMPTS = (
    "Write a Python function that returns the lines of a file that hold a word.",
    "Tell a short story about a lighthouse keeper who finds a letter.",
    "Explain why the sky is blue to a child.",
    'Continue this JSON: [{"city": "Lima", "country": "Peru"}, {"city": "Oslo",',
)


def load_agreeing_head(
    files: HeadFiles,
    target: CachedModel,
    prompts: Sequence[Sequence[int]],
    stops: frozenset[int],
    report: OnStep = unseen,
) -> CachedHead:
    """The head in `files`, once it has guessed what `target` says after `prompts`; `report` hears how far that is.

    Raises: NotAvailable for files that are wrong, Refused for a head that does not guess, or not for this target.
    """
    output_head = output_head_for(target.network, files.name)
    (on_share,) = _reading(report, [files.loaded_bytes], "reading the head")

    def asked() -> Iterator[Sequence[int]]:
        for number, prompt in enumerate(prompts, 1):
            report(Step("proving the head", number, len(prompts)))
            yield prompt

    module, found = load_agreeing(files, target, own_texts(target, asked(), stops), on_share)
    files.require_outputs(output_head.vocab_size)
    found.require(files, target.name)
    return CachedHead(Head(module, target.network, files.name, found, files.recent))


SAME_FILES = "give both the same files: copy the folder, or pull the same commit on both"


def load(
    pair: str | Pair | PairSpec | None = None,
    *,
    target: str | None = None,
    draft: str | None = None,
    drafter: str | None = None,
    reserve_tokens: int | None = None,
    kv_bits: int | None = None,
    draft_context: DraftContext | None = None,
    costs: CostStore | None = None,
    tell: Notify = unheard,
    report: OnStep = unseen,
    clock: Clock = time.perf_counter,
    request: Request | None = None,
    group: Group | None = None,
) -> LoadedPair:
    """Load a pair: by name, as a Pair, or `target` and `draft` by Hub id or folder; without any, the default pair.

    Nothing is downloaded. The draft is loaded only where `drafter` uses one. `kv_bits` quantizes the KV caches of
    both. Of a context the draft reads the last `draft_context` tokens, or `full`; None: as the pair says. `costs`
    remembers costs from run to run. `tell` hears of a head that does not draft, `report`
    how far the loading is. With `reserve_tokens` the pair is
    refused if it does not fit with caches that long.
    The kernels of `request`, or of one by the target's defaults, are compiled beside the reading. The ranks of a
    `group` share the target, and each has the draft; their files must be the same.
    Raises: NotAvailable, Refused, DoesNotFit; UsageError for an unknown drafter.
    """
    if drafter is not None and drafter not in tuple(DRAFTERS):
        raise UsageError(f"--drafter {drafter} is unknown", f"known drafters: {', '.join(DRAFTERS)}")
    if kv_bits is not None:
        one_of("kv_bits", KV_BITS)(whole("kv_bits", kv_bits))
    within("reserve_tokens", 0)(reserve_tokens)
    request = require_valid(request or Request())
    if isinstance(pair, Pair):
        spec = PairSpec(pair, drafter or DEFAULT_DRAFTER)
    elif isinstance(pair, PairSpec):
        spec = pair
    else:
        for name, value in (("pair", pair), ("target", target), ("draft", draft)):
            require_text(name, value)
        spec = choose(pair, target, draft, here=drafter != NONE.name, report=report)
    spec = replace(spec, drafter=drafter or spec.drafter).reading(draft_context)
    require_valid_pair(spec.pair)

    options = reserve_tokens, kv_bits, costs, tell, report, clock, request, group
    if group is None:
        return load_files(resolve(spec, notify=tell), *options)
    with group.doing(["load", asdict(spec), asdict(request), reserve_tokens]):
        files = group.all(lambda: resolve(spec, notify=tell))
        found = fingerprints(files)
        group.all(lambda: group.require_same(found, SAME_FILES))
        loaded = group.all(lambda: load_files(files, *options))
        kind = {"the kind of draft": loaded.draft_kind or "none"}  # a head may have been left out on one of them
        group.all(lambda: group.require_same(kind, "decode without it: --drafter none"))
        return replace(loaded, machine_bytes=group.gather(loaded.first.weight_bytes))


def load_files(
    files: PairFiles,
    reserve_tokens: int | None,
    kv_bits: int | None,
    costs: CostStore | None,
    notify: Notify,
    report: OnStep,
    clock: Clock,
    request: Request,
    group: Group | None = None,
) -> LoadedPair:
    """The pair in `files`; the arguments are those of `load`. Raises: NotAvailable, Refused, DoesNotFit."""
    with compiling(kernels_of(files, request), notify):
        files = usable(files, reserve_tokens, kv_bits, notify, group.size if group else 1)
        loaded = _load_models(files, kv_bits, costs, report, clock, group)
    if isinstance(files.draft, DraftHead):
        try:
            loaded = with_head(loaded, files.draft.head, report)
        except (NotAvailable, Refused) as error:
            if files.draft.asked:
                raise
            notify_without_head(notify, error)
    for warning in (files.vocab.warning if files.vocab else "", loaded.context.warning(request)):
        if warning:
            notify(warning)
    if not device.wire(weight_bytes := loaded.first.weight_bytes):
        notify(f"SPECDEC_WIRE=1 wires nothing: weights of {size(weight_bytes)} exceed what Metal recommends")
    return loaded


def kernels_of(files: PairFiles, request: Request) -> Callable[[], None]:
    """Work that has the kernels of a reply to `request` compiled, on small arrays. Raises: UsageError."""
    target, kind = files.target.checkpoint, DRAFTERS[files.spec.drafter]
    sampling = sampling_of(target.generation_config, request)
    rule = effective_rule(request.rule, request.seed, sampling.temperature).name
    width = target.whole("vocab_size", USUAL_VOCABULARY)

    def work() -> None:
        warm_up(rule, sampling, width, target.computed_dtype or "", files.draft is not None, kind.looks_up)
        for checkpoint in files.checkpoints:
            warm_up_network(checkpoint)
        if files.head:
            warm_up_products(files.head.tensors, files.head.config, target.computed_dtype)

    return work


def beside(loaded: LoadedPair, draft: str) -> LoadedPair:
    """The target of `loaded` with another draft, whose weights are read from `draft`. Raises: NotAvailable, Refused."""
    spec = PairSpec(replace(loaded.pair, draft=draft, draft_revision=None, draft_adapter=None))
    files = usable(resolve(spec), None, None, unheard)
    if files.head:
        return with_head(loaded, files.head)
    draft_model = as_draft(files, load_weights(files.checkpoints[1]), loaded.first.target)
    slot = Slot(loaded.first.target, draft_model)
    return LoadedPair(
        loaded.pair, (loaded.names[0], draft_model.name), loaded.tokenizer, slot, loaded.generation_config
    )


def as_draft(files: PairFiles, draft: CachedModel, target: CachedModel) -> CachedModel:
    """`draft` as it drafts for `target`: translated, where the tokenizers in `files` differ."""
    if files.vocab is None or files.vocab.status != "translated":
        return draft
    return TranslatedModel.of(draft, files.translation, target.vocab_size)


def under_adapter(loaded: LoadedPair, folder: str) -> LoadedPair:
    """The target of `loaded`, and its draft anew under the adapter in `folder`. Raises: NotAvailable, Refused."""
    pair = replace(loaded.pair, draft_adapter=folder)
    files = resolve(PairSpec(pair))
    draft = as_draft(files, load_weights(files.checkpoints[1]), loaded.first.target)
    return replace(loaded, pair=pair, first=Slot(loaded.first.target, draft), costs={})


def with_head(loaded: LoadedPair, files: HeadFiles, report: OnStep = unseen) -> LoadedPair:
    """The target of `loaded` with the head in `files` as draft, once it has guessed some of the target's words.

    Raises: NotAvailable for files that are wrong, Refused for a head that does not guess.
    """
    prompts = [loaded.message_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
    target = loaded.first.target
    head = load_agreeing_head(files, target, prompts, loaded.tokenizer.stop_tokens, report)
    return replace(loaded, names=(loaded.names[0], files.name), first=Slot(target, head))


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


def _reading(report: OnStep, all_bytes: Sequence[int], part: str = "") -> Iterator[Callable[[float], None]]:
    """For each of `all_bytes` what hears which share of it was read, and reports how much is of all."""
    for at, its_bytes in enumerate(all_bytes):

        def on_share(share: float, before: int = sum(all_bytes[:at]), its_bytes: int = its_bytes) -> None:
            report(Step(part, before + round(share * its_bytes), sum(all_bytes), "bytes"))

        on_share(0.0)
        yield on_share


def _load_models(
    files: PairFiles, kv_bits: int | None, costs: CostStore | None, report: OnStep, clock: Clock, group: Group | None
) -> LoadedPair:
    """The pair with its models, but without a head as draft."""
    pair, target, *drafts = files.spec.pair, *files.checkpoints
    bound_memory()
    device.wire(0)
    shares = [group.size if group else 1, 1]
    sizes = [one.loaded_bytes // share for one, share in zip(files.checkpoints, shares, strict=False)]
    read = _reading(report, sizes)
    loaded = load_weights(target, kv_bits, group, next(read))
    kept: CostStore = {} if costs is None or device.is_virtual() else CostsAtPower(costs, power())
    threads = fit_threads(loaded, kept, alone=group is None)
    began = clock()
    draft = as_draft(files, load_weights(drafts[0], kv_bits, None, next(read)), loaded) if drafts else None
    slot = Slot(loaded, draft)
    # The cost of a round depends on these and on the length of the context.
    models = " + ".join(f"{name}@{revision or 'latest'}" for name, revision in pair.models)
    models += "".join(f" adapter {one}" for one in (pair.target_adapter, pair.draft_adapter) if one)
    where = f"{device.device_name()} {blas.load() or device.backend()}, mlx {device.versions()['mlx']}"
    where += f", {threads} of them" if threads else ""
    where += f", {group.size} machines" if group else ""
    return LoadedPair(
        pair=pair,
        names=(target.name, drafts[0].name if drafts else None),
        tokenizer=files.tokenizer,
        first=slot,
        generation_config=target.generation_config,
        costs=kept,
        identity=f"{models} · kv {kv_bits or 'full'} · draft context {pair.draft_context} · {where}",
        # A head is never released, so nothing reads it again.
        reload_seconds=clock() - began if drafts else 0.0,
        group=group,
        fingerprint=cache(lambda: fingerprint(numbers_depend_on(files, kv_bits, where))),
    )


def numbers_depend_on(files: PairFiles, kv_bits: int | None, where: str) -> dict[str, str]:
    """By name, all that the numbers in a cache depend on; `where` is the device with what computes on it."""
    revisions = " + ".join(f"{name}@{revision}" for name, revision in files.spec.pair.models)
    asked = {"revisions": revisions, "kv bits": str(kv_bits), "draft context": str(files.spec.pair.draft_context)}
    try:
        return fingerprints(files, here=True) | device.versions() | asked | {"device": where}
    except OSError:  # a file is gone since it was read: nothing else has this name
        return {"unknown": secrets.token_hex(16)}
