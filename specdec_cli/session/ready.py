"""What the opener of a pair does beside: kernels are compiled while weights are read, and a head is proved.

A head drafts once it has guessed some of its target's own words: what is wrong with one fails silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from specdec_cli.core.errors import NotAvailable, Refused
from specdec_cli.core.kinds import DRAFTERS, effective_rule
from specdec_cli.core.progress import OnStep, Step, unseen
from specdec_cli.core.request import Request
from specdec_cli.engine.heads.cached_head import CachedHead, Head, output_head_for
from specdec_cli.engine.heads.load_head import load_agreeing, own_texts
from specdec_cli.engine.warmup import compiling, warm_up, warm_up_network, warm_up_products
from specdec_cli.models.heads import HeadFiles
from specdec_cli.pairs.files import DraftHead, Notify, PairFiles, unheard
from specdec_cli.session.session import LoadedPair, sampling_of
from specdec_cli.session.slot import Slot

# Of a configuration that does not say.
USUAL_VOCABULARY = 1 << 16
# Short, of several kinds, and unlike each other: the target goes on from each.
PROMPTS = (
    "Write a Python function that returns the lines of a file that hold a word.",
    "Tell a short story about a lighthouse keeper who finds a letter.",
    "Explain why the sky is blue to a child.",
    'Continue this JSON: [{"city": "Lima", "country": "Peru"}, {"city": "Oslo",',
)


def warming(files: PairFiles, request: Request, tell: Notify) -> AbstractContextManager[None]:
    """In this context the kernels of a reply to `request` are compiled, on small arrays; `tell` hears if it takes long.

    Raises: UsageError.
    """
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

    return compiling(work, tell)


def prove(loaded: LoadedPair, draft: DraftHead, tell: Notify = unheard, report: OnStep = unseen) -> LoadedPair:
    """The target of `loaded` with this head as draft; without it, as `tell` hears, if nobody asked for one that fails.

    `report` hears how far that is. Raises: NotAvailable for files that are wrong, Refused for a head that does not
    guess, or not for this target.
    """
    try:
        head = _proved(loaded, draft.head, report)
    except (NotAvailable, Refused) as error:
        if draft.asked:
            raise
        tell(f"no head drafts: {error.message}")
        return loaded
    return replace(loaded, names=(loaded.names[0], draft.head.name), first=Slot(loaded.first.target, head))


def _proved(loaded: LoadedPair, files: HeadFiles, report: OnStep) -> CachedHead:
    target, stops = loaded.first.target, loaded.tokenizer.stop_tokens
    prompts = [loaded.message_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
    output_head = output_head_for(target.network, files.name)
    (on_share,) = parts_read(report, [files.loaded_bytes], "reading the head")

    def asked() -> Iterator[Sequence[int]]:
        for number, prompt in enumerate(prompts, 1):
            report(Step("proving the head", number, len(prompts)))
            yield prompt

    module, found = load_agreeing(files, target, own_texts(target, asked(), stops), on_share)
    files.require_outputs(output_head.vocab_size)
    found.require(files, target.name)
    return CachedHead(Head(module, target.network, files.name, found, files.recent))


def parts_read(report: OnStep, all_bytes: Sequence[int], part: str = "") -> Iterator[Callable[[float], None]]:
    """For each of `all_bytes` what hears which share of it was read, and reports how much is of all."""
    for at, its_bytes in enumerate(all_bytes):

        def on_share(share: float, before: int = sum(all_bytes[:at]), its_bytes: int = its_bytes) -> None:
            report(Step(part, before + round(share * its_bytes), sum(all_bytes), "bytes"))

        on_share(0.0)
        yield on_share
