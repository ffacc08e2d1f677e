"""Which files of a pair are to be loaded. Law: every refusal comes before any weight is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec_cli.engine.footprint import require_fit
from specdec_cli.engine.load import require_runnable, require_verifiable
from specdec_cli.errors import DoesNotFit
from specdec_cli.kinds import DrafterKind
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint
from specdec_cli.models.heads import HeadFiles
from specdec_cli.models.token_files import read_alike
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.vocab import require_same_ids
from specdec_cli.pairs.drafts import Tell, find_draft
from specdec_cli.pairs.here import model_folder
from specdec_cli.pairs.pair import Pair


@dataclass(frozen=True, slots=True)
class PairFiles:
    """What is to be loaded. `head_asked`: the head must draft, or what keeps it from that is an error."""

    target: Checkpoint
    tokenizer: Tokenizer
    draft: Checkpoint | None
    head: HeadFiles | None
    head_asked: bool

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [self.target, self.draft] if self.draft else [self.target]


def pair_files(pair: Pair, kind: DrafterKind, kv_bits: int | None, tell: Tell) -> PairFiles:
    """Configurations, tokenizers and headers of all come first."""
    target = read_checkpoint(model_folder(pair, pair.target, pair.target_revision), pair.target)
    found = find_draft(pair, target, kind, tell)
    require_runnable(target, kv_bits)
    if kind.drafts:
        require_verifiable(target)
    tokenizer = Tokenizer.load(target.folder, target.name, target.config)
    if found.model:
        require_draft(found.model, tokenizer, target, kv_bits)
    return PairFiles(target, tokenizer, found.model, found.head, found.asked)


def fitting(parts: PairFiles, reserve_tokens: int, kv_bits: int | None, tell: Tell) -> PairFiles:
    """What fits of `parts`: all of it, or all but a head that nobody asked for. Raises: DoesNotFit."""
    try:
        require_fit(parts.checkpoints, reserve_tokens, kv_bits, parts.head)
    except DoesNotFit as error:
        if parts.head is None or parts.head_asked:
            raise
        require_fit(parts.checkpoints, reserve_tokens, kv_bits)
        tell(f"no head drafts: {error.message}")
        return replace(parts, head=None)
    return parts


def require_draft(draft: Checkpoint, tokenizer: Tokenizer, target: Checkpoint | str, kv_bits: int | None) -> None:
    """Raises: NotAvailable, Refused for a draft that cannot run, be verified or share the target's ids.

    `target`: its files, or only its name. A tokenizer of the very files is not read: one of 262,144 tokens takes
    seconds.
    """
    require_runnable(draft, kv_bits)
    require_verifiable(draft)
    if isinstance(target, Checkpoint) and _tokenized_alike(draft, target):
        return
    other = Tokenizer.load(draft.folder, draft.name, draft.config)
    name = target if isinstance(target, str) else target.name
    require_same_ids(tokenizer.table(), other.table(), name, draft.name)


def _tokenized_alike(one: Checkpoint, other: Checkpoint) -> bool:
    same_type = one.config.get("model_type") == other.config.get("model_type")  # transformers chooses a class by it
    return same_type and read_alike(one.folder, other.folder)
