"""A draft model with a tokenizer of its own: ids in and scores out, on the device.

Letters: V the target's vocabulary size, D the draft's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.core.kinds import TRANSLATED
from specdec_cli.engine.model import CachedModel, Network
from specdec_cli.models.translation import TranslatedText, Translation


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """`said` is the translation's, of ids that have a row in both networks; `ids` [V] are the draft's, `mute` [V]."""

    said: Mapping[int, int]
    ids: mx.array
    mute: mx.array

    @classmethod
    def of(cls, translation: Translation, width: int, draft_width: int) -> Tables:
        """For V = `width` and D = `draft_width`."""
        said = {one: other for one, other in translation.said.items() if one < width and other < draft_width}
        ids = mx.array([said.get(token, 0) for token in range(width)], dtype=mx.int32)
        return cls(said, ids, mx.array([token not in said for token in range(width)]))

    def scores(self, logits: mx.array) -> mx.array:
        """The draft's `logits` [1, D] as those of the target's ids [1, V]: what it cannot say has no odds."""
        return mx.where(self.mute, -mx.inf, mx.take(logits, self.ids, axis=-1))


class TranslatedModel(CachedModel):
    """Its caches hold ids of its own, which `translation` makes of a context."""

    kind = TRANSLATED.name

    def __init__(self, network: Network, translation: Translation, tables: Tables) -> None:
        super().__init__(network)
        self.translation, self.tables = translation, tables

    @classmethod
    def of(cls, draft: CachedModel, translation: Translation, width: int) -> TranslatedModel:
        """The network of `draft` for a target of V = `width`."""
        return cls(draft.network, translation, Tables.of(translation, width, draft.vocab_size))

    def fresh(self) -> TranslatedModel:
        return TranslatedModel(self.network, self.translation, self.tables)

    def unread(self, context: Sequence[int]) -> int:
        """In tokens of the target's `context`."""
        text = TranslatedText(self.translation, context)
        return len(context) - text.tokens_at(self.reach(text.ids))

    def own_ends(self, context: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
        text = TranslatedText(self.translation, context)
        return [text.ends[min(end, len(context))] for end in ends]
