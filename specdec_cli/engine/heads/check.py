"""Does a head guess right? Law: a head drafts only after it agreed with the target's own words; whoever says how it is
used has to prove it.

What goes wrong with heads fails silently: another hidden state, norms shifted twice or not at all, another order,
another token, another state carried on. So the head guesses a text that the target has just said, in every such
variant. That of its family is kept unless another is better beyond luck: a sign test on how many guesses in a row are
right at each position, which for one step is McNemar's exact test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from math import exp, lgamma, log, log1p
from typing import Literal

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.heads.agreement import ODDS, STEPS, Agreement, Variant, used
from specdec_cli.engine.heads.branches import Text, guesses
from specdec_cli.engine.heads.mtp import MtpHead, Recipe
from specdec_cli.engine.hidden import LAST, READ
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.readout import Readout

# Positions after which it is decided, if that is possible; and tokens after which no more is said for it.
LOOKS = (200, 500, 1000)
MOST_TOKENS = 1000
# A position is told from another by so many words before it, and those that are guessed.
WORDS_BEFORE = 2
# A variant that is better than the chosen one by less than these odds, among those left, is worth more text.
SUGGESTIVE = 0.1
TEXT_TOKENS = 50
CARRIES: tuple[Literal["normed", "raw"], ...] = ("normed", "raw")
Places = tuple[Text, list[int]]
"""A text, and positions of it."""
LAGS: tuple[Literal[0, 1], ...] = (0, 1)


def check(head: MtpHead, target: CachedModel, zero_centred: bool, texts: Iterator[Text]) -> Agreement:
    """Find the variant in which `head` guesses best in `texts`, which are `target`'s own; see `own_texts`.

    `zero_centred` is how the norms of `head` were taken to be stored when it was loaded. Leaves `head` as it was.
    """
    readout = target.network.hidden.readout.scored_by(head.output)
    contest = Contest(head, readout, Variant(head.recipe, zero_centred), readable(target))
    for look in LOOKS:
        contest.read(texts, look)
        found = contest.result()
        if contest.positions < look or not contest.undecided(found):
            break
    return found


def readable(target: CachedModel) -> tuple[str, ...]:
    """The states of `target` that a head may have been trained on."""
    return (READ, LAST) if target.network.hidden.readout.last_layer is not None else (READ,)


def own_texts(target: CachedModel, prompts: Sequence[Sequence[int]], stops: frozenset[int]) -> Iterator[Text]:
    """What `target` says at temperature 0 after each of `prompts`, some tokens at a time, in turns, until it stops.

    Its own caches stay as they are.
    """
    contexts = [list(prompt) for prompt in prompts]
    while contexts:
        going = []
        for context in contexts:
            yield (text := _continued(target, context, stops))
            limit = target.context_limit
            if text.context[-1] not in stops and (limit is None or len(text.context) + TEXT_TOKENS < limit):
                going.append(list(text.context))
        contexts = going


def _continued(target: CachedModel, prompt: Sequence[int], stops: frozenset[int]) -> Text:
    cached, context, outputs = target.fresh(), list(prompt), []
    with target.network.hidden.exposed(readable(target)):
        for chunk in cached.prefill(context):
            outputs.append(chunk)
        for _ in range(TEXT_TOKENS):
            outputs.append(cached.outputs(context))
            context += device.to_list(mx.argmax(outputs[-1].logits, axis=-1))
            if context[-1] in stops:
                break
    paths = readable(target)
    hidden = {path: mx.concatenate([output.hidden[path] for output in outputs]) for path in paths}
    return Text(context, len(prompt), hidden)


class Contest:
    """Variants of one head, and how many guesses of each were right in a row at each position, at most STEPS."""

    def __init__(self, head: MtpHead, readout: Readout, known: Variant, reads: Sequence[str]) -> None:
        self._head, self._readout, self._known = head, readout, known
        others = [variant for variant in _variants(reads) if variant != known]
        self._left, self._tried = [known, *others], len(others)
        self._runs: dict[Variant, list[int]] = {}
        self._first: dict[Variant, list[int]] = {}
        self._tokens: list[int] = []
        self._phrases: set[tuple[int, ...]] = set()
        self._read = 0

    @property
    def positions(self) -> int:
        return len(self._tokens)

    def read(self, texts: Iterator[Text], positions: int) -> None:
        """Let every variant that may be the best guess further texts, until so many positions are guessed in all."""
        batch: list[Places] = []
        while self.positions < positions and self._read < MOST_TOKENS and (text := next(texts, None)):
            batch.append((text, self._fresh(text)))
        if not self._runs:
            self._left = self._promising(batch)
        for text, places in batch:
            for variant in self._left:
                found = self._guess(variant, text, places, STEPS)
                self._first.setdefault(variant, []).extend(found[0])
                self._runs.setdefault(variant, []).extend(_runs(found, text, places))

    def _fresh(self, text: Text) -> list[int]:
        """Positions whose words were not guessed before: what is said again proves nothing again."""
        places = []
        for at in text.scored(STEPS):
            phrase = tuple(text.context[at - WORDS_BEFORE : at + STEPS])
            if phrase not in self._phrases:
                places.append(at)
            self._phrases.add(phrase)
        self._tokens += [text.context[at] for at in places]
        self._read += len(text.context) - text.begin
        return places

    def result(self) -> Agreement:
        """As far as the texts go."""
        chosen = self._chosen()
        guessed, said, n = Counter(self._first.get(chosen, ())), Counter(self._tokens), max(self.positions, 1)
        chance = sum(guessed[token] * said[token] for token in said) / n**2
        right = sum(run > 0 for run in self._runs.get(chosen, ()))
        # The best of many has had as many chances.
        odds = min(1.0, at_least(right, n, chance) * (1 + self._tried * (chosen != self._known)))
        shares, known_shares = self._shares(chosen), self._shares(self._known)
        return Agreement(chosen, self._known, self.positions, shares, known_shares, chance, odds)

    def _chosen(self) -> Variant:
        """The family's unless another is clearly better; of those that are as good as the best, the most like it."""
        best = max(self._left, key=lambda variant: sum(self._runs.get(variant, ())))
        if self._odds(best) >= ODDS / (self._tried * len(LOOKS)):
            return self._known
        runs = self._runs[best]
        equals = [variant for variant in self._left if sign_test(runs, self._runs[variant]) >= ODDS]
        return min(equals, key=lambda variant: (variant.distance(self._known), -sum(self._runs[variant])))

    def undecided(self, found: Agreement) -> bool:
        """Whether more text may change what is chosen, or whether anything guesses at all."""
        others, chosen = [one for one in self._left if one != found.variant], self._runs.get(found.variant, [])
        odds = (sign_test(self._runs.get(variant, []), chosen) for variant in others)
        better = any(one < SUGGESTIVE / len(others) for one in odds)
        return better or (not found.guesses and found.odds < SUGGESTIVE)

    def _odds(self, variant: Variant) -> float:
        """That luck alone makes `variant` so much better than the family's."""
        return sign_test(self._runs.get(variant, []), self._runs.get(self._known, []))

    def _promising(self, batch: Sequence[Places]) -> list[Variant]:
        """The family's, and those whose first guesses are not clearly worse than the best's.

        What is carried on makes no difference to a first guess, so half of them need not be tried for that.
        """
        right: dict[Variant, list[int]] = {}
        for variant in self._left:
            if variant.recipe.carries == self._known.recipe.carries:
                guessed = (_runs(self._guess(variant, text, places, 1), text, places) for text, places in batch)
                right[variant] = [run for runs in guessed for run in runs]
        best = max(right.values(), key=sum)
        kept = {v.first_guess for v, found in right.items() if sign_test(best, found) >= ODDS / self._tried}
        return [v for v in self._left if v == self._known or v.first_guess in kept]

    def _guess(self, variant: Variant, text: Text, places: Sequence[int], steps: int) -> list[list[int]]:
        """[steps][n] for the n `places`."""
        scored = text.scored(STEPS)
        with used(self._head, variant, self._known.zero_centred):
            found = guesses(self._head, self._readout, text, scored, steps)
        return [[tokens[at - scored.start] for at in places] for tokens in found]

    def _shares(self, variant: Variant) -> tuple[float, ...]:
        runs, n = self._runs.get(variant, []), max(self.positions, 1)
        return tuple(sum(run > step for run in runs) / n for step in range(STEPS))


def _variants(reads: Sequence[str]) -> list[Variant]:
    recipes = [
        Recipe(read, carries, first, lag) for read, carries, first, lag in product(reads, CARRIES, (True, False), LAGS)
    ]
    return [Variant(recipe, centred) for recipe in recipes for centred in (True, False)]


def _runs(found: Sequence[Sequence[int]], text: Text, places: Sequence[int]) -> list[int]:
    """[n]: how many of the guesses `found` [K][n] for `places` are right in a row, from the first on."""
    runs = []
    for row, at in enumerate(places):
        wrong = (step for step, tokens in enumerate(found) if tokens[row] != text.context[at + step])
        runs.append(next(wrong, len(found)))
    return runs


def sign_test(ours: Sequence[int], theirs: Sequence[int]) -> float:
    """The odds that pairs of equal chances favour `ours` so often: McNemar's exact test, of one side."""
    pairs = list(zip(ours, theirs, strict=True))
    wins, losses = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    return at_least(wins, wins + losses, 0.5)


def at_least(hits: int, trials: int, chance: float) -> float:
    """The odds of `hits` or more in `trials` of that `chance` (the binomial's upper tail)."""
    if hits <= 0 or chance >= 1:
        return 1.0
    if chance <= 0:
        return 0.0
    whole = lgamma(trials + 1)
    terms = (
        exp(whole - lgamma(k + 1) - lgamma(trials - k + 1) + k * log(chance) + (trials - k) * log1p(-chance))
        for k in range(hits, trials + 1)
    )
    return min(sum(terms), 1.0)
