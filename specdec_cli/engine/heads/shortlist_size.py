"""How many tokens drafts are scored over. Law: by what was measured here and by the target's own words, else all.

A smaller output head makes a drafted token cheaper, and never guesses the tokens that it lacks. Both are known when a
head is checked: the seconds of its parts, and the share of the target's words that are among the first tokens, or were
in the text before. What that gains is S(K) at the best K.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median

import mlx.core as mx

from specdec_cli import speedup
from specdec_cli.engine.heads.branches import Text
from specdec_cli.engine.heads.mtp import MtpHead
from specdec_cli.engine.heads.shortlist import Shortlist
from specdec_cli.engine.model import CachedModel

Clock = Callable[[], float]
# Parts of the vocabulary that are tried; one with fewer tokens than LEAST costs next to nothing anyway.
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
LEAST = 8192
# A gain that small is not worth a draft's rarer words.
WORTH = 1.02
KS = range(1, 5)
REPEATS = 5


def useful_tokens(
    head: MtpHead,
    target: CachedModel,
    texts: Sequence[Text],
    acceptance: float,
    always: Iterable[int],
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """How many of the first tokens to draft over, 0 for all: the best for a head whose guesses are right that often.

    `texts` are the target's own.
    """
    readout, always = target.network.hidden.readout.scored_by(head.output), tuple(always)
    sizes = [round(share * readout.vocab_size) for share in SHARES if share * readout.vocab_size >= LEAST]
    lists = [Shortlist(readout, size, always) for size in sizes]
    if not lists or not texts or not lists[0].proven:
        return 0
    hidden = mx.random.normal((1, readout.hidden_size), key=mx.random.key(0))
    plain = _seconds(lambda: target.fresh().forward(mx.array([0])).logits, clock)
    layer = _seconds(lambda: head(hidden, hidden).scored, clock)
    best, most = 0, WORTH * gain(acceptance, (layer + _seconds(lambda: readout.logits(hidden), clock)) / plain)
    for size, shortlist in zip(sizes, lists, strict=True):
        step = (layer + _seconds(partial(shortlist.logits, hidden), clock)) / plain
        found = gain(acceptance * coverage(texts, size, always), step)
        if found > most:
            best, most = size, found
    return best


def gain(acceptance: float, draft_step: float) -> float:
    """S at the best K, for a draft step of so many plain steps; rows cost what they usually do."""
    rates = ((speedup.tokens_per_round(acceptance, k), 1 + k * speedup.TYPICAL_ROW_COST, k) for k in KS)
    return max(speedup.speedup(tokens, speedup.round_steps(k, draft_step, rows)) for tokens, rows, k in rates)


def coverage(texts: Sequence[Text], first: int, always: Iterable[int]) -> float:
    """The share of the target's own words that a draft over the `first` tokens can have, less one for small numbers."""
    covered, words = 0, 1
    for text in texts:
        seen = {*always, *text.context[: text.begin]}
        for token in text.context[text.begin :]:
            covered += token < first or token in seen
            seen.add(token)
        words += len(text.context) - text.begin
    return covered / words


def _seconds(make: Callable[[], mx.array], clock: Callable[[], float]) -> float:
    """The median of some calls that make one array, after one that is not counted."""
    found = []
    for _ in range(1 + REPEATS):
        began = clock()
        mx.eval(make())
        found.append(clock() - began)
    return median(found[1:])
