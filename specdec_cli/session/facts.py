"""What is known of a pair before any weight is read: names, tokenizer, limits."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_cli.kinds import DrafterKind
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.pairs.drafts import read_draft
from specdec_cli.pairs.here import model_folder
from specdec_cli.pairs.pair import Pair


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
        if model := read_draft(folder, draft, target).model:
            limits.append(model.context_limit)
    tokenizer = Tokenizer.load(target.folder, target.name, target.config)
    vocab_size = target.whole("vocab_size", max(tokenizer.table().tokens) + 1)
    limit = min((limit for limit in limits if limit is not None), default=None)
    return PairFacts((target.name, draft), tokenizer, vocab_size, limit)
