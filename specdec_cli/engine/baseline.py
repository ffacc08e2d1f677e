"""mlx-lm alone, the reference: its plain decoding, and a known text read in passes of several rows.

Plain decoding is `generate_step`: as Rounds, the honest baseline and the oracle our loop is tested against; as scored
steps, the oracle of `specdec audit`. Every pass over a known text reads plain decoding's own tokens, so that two
readings of a position differ by arithmetic alone. A pass of mlx-lm has as many rows as ours and the same tokens in
them, so the same kernels compute both.
Letters: n rows a pass, V vocabulary size. Positions count the answer's tokens from 0.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache, make_prompt_cache, trim_prompt_cache

from specdec_cli.core.events import Round
from specdec_cli.core.kinds import NONE
from specdec_cli.engine import device
from specdec_cli.engine.cache.cache_kinds import KVQuantization
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.model import Agreed, CachedModel, own
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.sampler import Sampler, TokenMask
from specdec_cli.engine.sampling.warps import Sampling

Scores = Callable[[mx.array, mx.array], mx.array]


def baseline(
    network: nn.Module, context: Sequence[int], max_tokens: int, stop_tokens: frozenset[int], clock: Clock
) -> Iterator[Round]:
    """Greedy plain decoding by mlx-lm, one Round per token; `verify_seconds` is the time between tokens."""
    since = clock()
    for index, (token, _) in enumerate(generate_step(mx.array(list(context)), network, max_tokens=max_tokens)):
        now = clock()
        token = int(token)
        yield Round(index, NONE.name, (), 0, token, (token,), draft_seconds=0.0, verify_seconds=now - since)
        if token in stop_tokens:
            return
        since = clock()


@dataclass(frozen=True, slots=True, eq=False)
class PlainStep:
    """One token of plain decoding: its row of `logits` [V], and the `scores` [V] of which it is the best."""

    token: int
    logits: mx.array
    scores: mx.array

    def lead(self, token: int) -> float:
        """The score of plain decoding's token less that of `token`."""
        best, other = self.scores[self.token].astype(mx.float32), self.scores[token].astype(mx.float32)
        return float(best - other)

    @property
    def largest_logit(self) -> float:
        """The largest finite magnitude: the rounding of this step is proportional to it."""
        sizes = mx.abs(self.logits.astype(mx.float32))
        return float(mx.max(mx.where(sizes < math.inf, sizes, 0.0)))


def plain_steps(
    network: nn.Module,
    context: Sequence[int],
    max_tokens: int,
    stop_tokens: frozenset[int],
    scores: Scores,
    agreed: Agreed = own,
    kv: KVQuantization | None = None,
) -> Iterator[PlainStep]:
    """Plain decoding by mlx-lm, each time the token with the best of `scores`, up to a stop token or `max_tokens`.

    The choice is the argmax of `scores` themselves, as ours is. mlx-lm's own is that of logits less their logsumexp in
    the model's type (`generate_step` in mlx_lm/generate.py): in half precision the subtraction can merge near logits,
    so that its own command says another token even against a plain step of the same logits.
    What every rank of a group has `agreed` on is the choice.
    `kv` quantizes the caches from the first token on, as ours are; mlx-lm itself would do so after the prompt.
    """
    scored: dict[int, tuple[mx.array, mx.array]] = {}
    last, chosen = 0, NO_TOKENS

    def keep(tokens: mx.array, logits: mx.array) -> mx.array:
        nonlocal last
        values, last = scores(tokens, logits), tokens.size
        scored[last] = logits[0], values[0]
        return values

    def choose(_: mx.array) -> mx.array:
        nonlocal chosen
        chosen = agreed(mx.argmax(scored[last][1], keepdims=True))
        return chosen

    caches = plain_caches(network, kv)
    steps = generate_step(
        mx.array(list(context)), network,
        max_tokens=max_tokens, sampler=choose, logits_processors=[keep], prompt_cache=caches,
    )  # fmt: skip
    for position, (token, _) in enumerate(steps, len(context)):
        yield PlainStep(int(token), *scored.pop(position))
        if token in stop_tokens:
            break
    # `generate_step` is a step ahead, in a stream of its own: a group's next sums would mix with those of that step.
    device.wait(chosen)


def target_scores(
    sampling: Sampling, noise: Noise, prompt: Sequence[int], constraint: TokenMask | None = None
) -> Scores:
    """(tokens so far [n], logits [1, V]) -> scores [1, V] whose best is the target's token.

    As the sampler scores for the target, with everything after `prompt` uncommitted. Above temperature 0 the noise of
    the token's absolute position is added, which is what `coupled` draws with. `constraint` stands where the answer
    begins.
    """

    def scores(tokens: mx.array, logits: mx.array) -> mx.array:
        vocab_size = logits.shape[-1]
        sampler = Sampler(sampling, noise.seed, prompt, vocab_size, constraint)
        found = sampler.for_target(logits, NO_TOKENS, tokens[len(prompt) :])
        return found if sampling.greedy else found + noise.gumbel("target", tokens.size, vocab_size)

    return scores


def plain_caches(network: nn.Module, kv: KVQuantization | None) -> list[Any]:
    """mlx-lm's own caches, empty, quantized as `kv` says."""

    def quantized(layer: Any) -> Any:
        if isinstance(layer, CacheList):
            return CacheList(*map(quantized, layer.caches))
        return layer.to_quantized(kv.group_size, kv.bits) if kv and type(layer) is KVCache else layer

    return [quantized(layer) for layer in make_prompt_cache(network)]


# An error may lift other tokens than the best two.
RIVALS = 7
Reading = Literal["whole", "repeated", "rejected"]


@dataclass(frozen=True, slots=True)
class Position:
    """A token of plain decoding, the `rivals` with the next best scores, and its `leads` over them in logits.

    `margin` is its lead over the best of them in scores: what a change must exceed to flip the two.
    """

    token: int
    rivals: tuple[int, ...]
    leads: tuple[float, ...]
    margin: float
    largest_logit: float

    @classmethod
    def of(cls, step: PlainStep) -> Position:
        """Waits for the device."""
        best = cast(list[int], mx.argsort(-step.scores)[: RIVALS + 1].tolist())
        rivals = tuple([token for token in best if token != step.token][:RIVALS])
        leads = _leads(step.logits[None], [step.token], [rivals])[0]
        return cls(step.token, rivals, leads, step.lead(rivals[0]), step.largest_logit)


@dataclass(frozen=True, slots=True)
class KnownText:
    """A prompt's ids and the answer of plain decoding, one row a pass."""

    prompt: Sequence[int]
    positions: Sequence[Position]

    @property
    def tokens(self) -> list[int]:
        """The answer's ids."""
        return [position.token for position in self.positions]


@dataclass(frozen=True, slots=True)
class ReadingPass:
    """From `start` on the first `true` rows read the text, the others wrong tokens; `kept` rows are not rolled back."""

    reading: Reading
    start: int
    true: int
    kept: int


def passes(positions: int, rows: int) -> Iterator[ReadingPass]:
    """Three readings of a text in passes of `rows` rows.

    `whole`: every draft is right, and nothing is rolled back. `repeated`: a pass at every position, of which one row is
    kept, so that every row reads every position that it can. `rejected`: whole drafts alternate with drafts that go
    wrong at each place in turn.
    """
    for start in range(0, positions, rows):
        true = min(rows, positions - start)
        yield ReadingPass("whole", start, true, true)
    if rows == 1:
        return
    for start in range(positions):
        yield ReadingPass("repeated", start, min(rows, positions - start), 1)
    start, count = 0, 0
    while start < positions:
        true = min(1 + (count // 2) % (rows - 1) if count % 2 else rows, positions - start)
        yield ReadingPass("rejected", start, true, true)
        start, count = start + true, count + 1


@dataclass(frozen=True, slots=True)
class RowLeads:
    """The leads of a position's token over its rivals, as `row` (from 0) of a pass."""

    reading: Reading
    position: int
    row: int
    leads: tuple[float, ...]


def row_leads(target: CachedModel, text: KnownText, rows: int) -> Iterator[RowLeads]:
    """The leads in `text` in passes of `rows` rows, as `passes` orders them. What `target` has read is replaced."""
    prompt, tokens = list(text.prompt), text.tokens
    reading = None
    for one in passes(len(tokens), rows):
        if one.reading != reading:
            reading = one.reading
            target.forget()
            deque(target.prefill(prompt), maxlen=0)
        context, drafted = prompt + tokens[: one.start], _draft_tokens(target, text, one, rows)
        found = _rows(target.logits(context, target.ids(drafted)), text, one)
        target.commit(prompt + tokens[: one.start + one.kept], len(context) + one.kept - 1)
        yield from found


def mlx_lm_leads(target: CachedModel, text: KnownText, rows: int) -> Iterator[RowLeads]:
    """The leads in `text` in passes of `rows` rows at every position, by the network and mlx-lm's own caches alone.

    Of each pass one row is kept: the others are trimmed where nothing but keys and values is cached, and elsewhere the
    pass reads a copy.
    """
    network, fed = target.network, [*text.prompt, *text.tokens]
    caches = plain_caches(network.module, network.kv)
    trimmed = all(type(layer) in (KVCache, QuantizedKVCache) for layer in caches)

    def feed(tokens: Sequence[int], layers: list[Any]) -> mx.array:
        logits: mx.array = network.module(mx.array([list(tokens)]), cache=layers)[0]
        mx.eval(logits, [layer.state for layer in layers if not layer.empty()])
        return logits

    last, chunk = len(text.prompt) - 1, device.prefill_tokens()
    for at in range(0, last, chunk):
        feed(fed[at : min(at + chunk, last)], caches)
    for start in range(len(text.positions)):
        one = ReadingPass("repeated", start, min(rows, len(text.positions) - start), 1)
        tokens = [fed[last + start], *_draft_tokens(target, text, one, rows)]
        logits = feed(tokens, caches if trimmed else deepcopy(caches))
        yield from _rows(logits, text, one)
        if trimmed:
            trim_prompt_cache(caches, len(tokens) - 1)
        else:
            feed(tokens[:1], caches)


def _draft_tokens(target: CachedModel, text: KnownText, one: ReadingPass, rows: int) -> list[int]:
    """What follows the first token of a pass: the text's tokens, then wrong ones, as many as the context has room for.

    mlx reads a learned position beyond the last one out of bounds.
    """
    end, wrong = one.start + one.true, rows - one.true
    if target.context_limit is not None:
        wrong = min(wrong, target.context_limit - len(text.prompt) - end + 1)
    last = len(text.positions) - 1
    others = [text.positions[min(at, last)].rivals[-1] for at in range(end - 1, end - 1 + wrong)]
    return text.tokens[one.start : end - 1] + others


def _rows(logits: mx.array, text: KnownText, one: ReadingPass) -> list[RowLeads]:
    """Of the true rows of `logits` [n, V]."""
    read = text.positions[one.start : one.start + one.true]
    leads = _leads(logits[: one.true], [position.token for position in read], [position.rivals for position in read])
    return [RowLeads(one.reading, one.start + row, row, gaps) for row, gaps in enumerate(leads)]


def _leads(logits: mx.array, tokens: Sequence[int], rivals: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
    """By how much each row of `logits` [n, V] rates its token above each of its rivals."""
    pairs = mx.array([[token, *others] for token, others in zip(tokens, rivals, strict=True)])
    known = mx.take_along_axis(logits, pairs, axis=-1).astype(mx.float32)
    return [tuple(row) for row in cast(list[list[float]], (known[:, :1] - known[:, 1:]).tolist())]
