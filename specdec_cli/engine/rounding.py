"""How rounding moves a target's logits in a text that is known already: float32 against the model's own type, passes
of several rows against passes of one.

Law: every pass reads plain decoding's own tokens, so that two readings of a position differ by arithmetic alone.
The readings of several rows go through CachedModel, rollback included; the others are mlx-lm's alone.
Letters: n rows a pass, V vocabulary size. Positions count the answer's tokens from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import mlx.core as mx
import mlx.nn as nn

from specdec_cli.engine.baseline import PlainStep, plain_steps
from specdec_cli.engine.intercept import intercept
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.network import Network

# The chosen token's lead over so many others is as good a sample of rounding each.
RIVALS = 7
Reading = Literal["whole", "repeated", "rejected"]


@dataclass(frozen=True, slots=True)
class Position:
    """A token of plain decoding, the `rivals` with the next best scores, and by how much its logit leads each."""

    token: int
    rivals: tuple[int, ...]
    leads: tuple[float, ...]
    largest_logit: float

    @classmethod
    def of(cls, step: PlainStep) -> Position:
        """Waits for the device."""
        best = cast(list[int], mx.argsort(-step.scores)[: RIVALS + 1].tolist())
        rivals = tuple([token for token in best if token != step.token][:RIVALS])
        return cls(step.token, rivals, _leads(step.logits, step.token, rivals), step.largest_logit)


@dataclass(frozen=True, slots=True)
class KnownText:
    """A prompt's ids and the answer of plain decoding, one row a pass."""

    prompt: Sequence[int]
    positions: Sequence[Position]

    @property
    def tokens(self) -> list[int]:
        """The answer's ids."""
        return [position.token for position in self.positions]


def float32_leads(network: Network, text: KnownText) -> list[tuple[float, ...]]:
    """The leads of every position by mlx-lm's own model call, caches and single rows, with float32 activations.

    Empty for a network that casts its activations to a narrower type on the way.
    """

    def known(tokens: mx.array, logits: mx.array) -> mx.array:
        at = min(tokens.size - len(text.prompt), len(text.positions) - 1)
        return mx.where(mx.arange(logits.shape[-1]) == text.positions[at].token, 0.0, -mx.inf)[None]

    found = []
    with float32_activations(network.module):
        steps = plain_steps(network.module, text.prompt, len(text.positions), frozenset(), known, network.kv)
        for step, position in zip(steps, text.positions, strict=True):
            if step.logits.dtype != mx.float32:
                return []
            found.append(_leads(step.logits, position.token, position.rivals))
    return found


@contextmanager
def float32_activations(network: nn.Module) -> Iterator[None]:
    """What `network` computes from here on has float32 activations; its weights stay as they are.

    mlx computes a product in the wider type of its operands, a quantized one with its scales widened. So it is enough
    that embeddings give float32; their rows are what the own type makes of them. Weights in 16 bits are widened while
    their product is computed, one matrix at a time.
    """
    kinds = (nn.Embedding, nn.QuantizedEmbedding)
    embeddings = [module for _, module in network.named_modules() if isinstance(module, kinds)]
    before = [module.__class__ for module in embeddings]
    for module in embeddings:
        intercept(module, _widened)
    try:
        yield
    finally:
        for module, kind in zip(embeddings, before, strict=True):
            object.__setattr__(module, "__class__", kind)


def _widened(module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return original(module, *args, **kwargs).astype(mx.float32)


@dataclass(frozen=True, slots=True)
class Pass:
    """From `start` on the first `true` rows read the text, the others wrong tokens; `kept` rows are not rolled back."""

    reading: Reading
    start: int
    true: int
    kept: int


def passes(positions: int, rows: int) -> Iterator[Pass]:
    """Three readings of a text in passes of `rows` rows.

    `whole`: every draft is right, and nothing is rolled back. `repeated`: a pass at every position, of which one row is
    kept, so that every row reads every position that it can. `rejected`: whole drafts alternate with drafts that go
    wrong at each place in turn.
    """
    for start in range(0, positions, rows):
        true = min(rows, positions - start)
        yield Pass("whole", start, true, true)
    if rows == 1:
        return
    for start in range(positions):
        yield Pass("repeated", start, min(rows, positions - start), 1)
    start, count = 0, 0
    while start < positions:
        true = 1 + (count // 2) % (rows - 1) if count % 2 else rows
        true = min(true, positions - start)
        yield Pass("rejected", start, true, true)
        start, count = start + true, count + 1


@dataclass(frozen=True, slots=True)
class RowGap:
    """The lead of a position's token over its best rival, as `row` (from 0) of a pass."""

    reading: Reading
    position: int
    row: int
    gap: float


def row_gaps(target: CachedModel, text: KnownText, rows: int) -> Iterator[RowGap]:
    """The gaps of `text` in passes of `rows` rows, as `passes` orders them. What `target` has read is replaced.

    At the end of the context there is no room for wrong tokens, and passes have fewer rows.
    """
    prompt, tokens = list(text.prompt), text.tokens
    reading = None
    for one in passes(len(tokens), rows):
        if one.reading != reading:
            reading = one.reading
            target.forget()
            deque(target.prefill(prompt), maxlen=0)
        context, end = prompt + tokens[: one.start], one.start + one.true
        wrong = rows - one.true
        if target.context_limit is not None:
            # mlx reads a learned position beyond the last one out of bounds.
            wrong = min(wrong, target.context_limit - len(prompt) - end + 1)
        fed = tokens[one.start : end - 1] + _wrong_tokens(text, end - 1, wrong)
        logits = target.logits(context, target.ids(fed))
        gaps = _gaps(logits[: one.true], text.positions[one.start : end])
        target.commit(prompt + tokens[: one.start + one.kept], len(context) + one.kept - 1)
        for row, gap in enumerate(gaps):
            yield RowGap(one.reading, one.start + row, row, gap)


def _wrong_tokens(text: KnownText, start: int, count: int) -> list[int]:
    """`count` ids that are not the text's, from position `start` on."""
    last = len(text.positions) - 1
    return [text.positions[min(at, last)].rivals[-1] for at in range(start, start + count)]


def _gaps(logits: mx.array, read: Sequence[Position]) -> list[float]:
    """Of `logits` [n, V], row by row: the token's lead over its best rival."""
    pairs = mx.array([[position.token, position.rivals[0]] for position in read])
    best = mx.take_along_axis(logits, pairs, axis=-1).astype(mx.float32)
    return cast(list[float], (best[:, 0] - best[:, 1]).tolist())


def _leads(logits: mx.array, token: int, rivals: Sequence[int]) -> tuple[float, ...]:
    """Of `logits` [V]."""
    wide = logits.astype(mx.float32)
    return tuple(cast(list[float], (wide[token] - wide[mx.array(list(rivals))]).tolist()))
