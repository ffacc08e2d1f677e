"""How well a head guesses its target's own words, in the family's reading or another. Too little, and it is refused.

What goes wrong with a head fails silently: norms shifted twice or not at all, another hidden state, another order. So
the target says some words, and the head guesses each from the words before it. Where that goes badly as its family is
read, a few other readings are tried. A family whose heads are misread in another way adds a line to `readings`.
Letters: T positions, D hidden size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.heads.families import BUILDS
from specdec_cli.engine.heads.load import load_head
from specdec_cli.engine.heads.mtp import MtpHead, Recipe
from specdec_cli.engine.hidden import LAST, READ, Hidden
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.network import Output
from specdec_cli.errors import Refused
from specdec_cli.format import percent
from specdec_cli.models.heads import HeadFiles

# Words that the target says after each prompt. Each is a plain step, so a head that guesses well at once is not asked
# for more than the first prompt's.
WORDS = 32
# Agreement beyond chance (Cohen's kappa). CLEAR: nothing else is tried. LEAD: another reading is that much better than
# the family's, twice what luck does in 128 words. FLOOR: less is a head of another model.
CLEAR, LEAD, FLOOR = 0.6, 0.1, 0.1


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to use a head's weights. `zero_centred`: its norms are stored less 1; `unlike` its family in that."""

    recipe: Recipe
    zero_centred: bool
    unlike: str = ""


def readings(files: HeadFiles, states: Sequence[str]) -> list[Reading]:
    """The family's own, then at most four others, for a target that has these `states`."""
    known = Reading(BUILDS[files.family.name].recipe, files.zero_centred)
    recipe, other = known.recipe, LAST if known.recipe.reads == READ else READ
    found = [
        known,
        Reading(recipe, not files.zero_centred, f"norms stored {'as they are' if files.zero_centred else 'less 1'}"),
        Reading(
            replace(recipe, embedding_first=not recipe.embedding_first),
            files.zero_centred,
            f"the {'state' if recipe.embedding_first else 'token'} first",
        ),
    ]
    if other in states:
        when = "before" if other == LAST else "after"
        found.append(
            Reading(replace(recipe, reads=other), files.zero_centred, f"the state {when} the target's last norm")
        )
    return found


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids, the target's own from `begin` on, and the target's states [T - 1, D] before each next token."""

    context: Sequence[int]
    begin: int
    hidden: Hidden

    @property
    def words(self) -> Sequence[int]:
        """The target's own that a head can guess: it reads a state and a token before each."""
        return self.context[max(self.begin, 2) :]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of `words` words, the share that a head guesses in this reading, and the share that luck alone would."""

    reading: Reading
    words: int
    share: float
    chance: float

    @property
    def kappa(self) -> float:
        """Agreement beyond chance: 1 for every word, 0 for luck. Where luck guesses every word, there is no telling."""
        return (self.share - self.chance) / (1 - self.chance) if self.chance < 1 else self.share

    @property
    def summary(self) -> str:
        """One line, with what is unlike its family."""
        text = f"guesses {percent(self.share)} of {self.words} of its target's words"
        return f"{text}; unlike its family: {self.reading.unlike}" if self.reading.unlike else text

    def require(self, name: str, target: str) -> None:
        """Raises: Refused, with the numbers, if the head `name` agrees with `target` hardly more than luck does."""
        if self.kappa < FLOOR:
            raise Refused(
                f"the MTP head of {name} guesses {percent(self.share)} of {self.words} tokens of {target}, and "
                f"chance {percent(self.chance)}: it is another model's, or damaged",
                "take the head of this very target, or draft otherwise: --drafter ngram",
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"summary": self.summary}


def agreement(head: MtpHead, reading: Reading, target: CachedModel, texts: Sequence[Text]) -> Agreement:
    """How well `head`, whose weights were loaded in this `reading`, guesses the words of `target` in `texts`."""
    guesses: list[int] = []
    output_head = target.network.hidden.output_head
    head.recipe = reading.recipe
    for text in texts:
        tokens, states = mx.array(list(text.context[1:-1]), dtype=mx.int32), text.hidden[reading.recipe.reads][:-1]
        scored = head(output_head.embed(tokens), states).scored[-len(text.words) :]
        guesses += device.to_list(mx.argmax(output_head.scored_by(head.output).logits(scored), axis=-1))
    words = [word for text in texts for word in text.words]
    right = sum(guess == word for guess, word in zip(guesses, words, strict=True))
    said, guessed = Counter(words), Counter(guesses)
    chance = sum(said[word] * guessed[word] for word in said) / max(len(words), 1) ** 2
    return Agreement(reading, len(words), right / max(len(words), 1), chance)


def load_agreeing(files: HeadFiles, target: CachedModel, texts: Iterator[Text]) -> tuple[MtpHead, Agreement]:
    """The head in `files` in the reading that agrees best with `target`'s own `texts`.

    They are asked for one by one until its family's reading agrees clearly; if it never does, the others are tried.

    Raises: as `load_head`.
    """
    size, (known, *others) = target.network.hidden.output_head.hidden_size, readings(files, readable(target))
    head, read = load_head(files, size), list[Text]()
    found = agreement(head, known, target, read)
    for text in texts:
        read.append(text)
        found = agreement(head, known, target, read)
        if found.kappa >= CLEAR:
            return head, found
    tried = [agreement(load_head(files, size, one.zero_centred), one, target, read) for one in others]
    best = max(tried, key=lambda one: one.kappa)
    if best.kappa < found.kappa + LEAD:
        return head, found
    return load_head(files, size, best.reading.zero_centred, best.reading.recipe), best


def readable(target: CachedModel) -> tuple[str, ...]:
    """The states of `target` that a head may have been trained on."""
    return (READ, LAST) if target.network.hidden.output_head.last_layer is not None else (READ,)


def own_texts(target: CachedModel, prompts: Sequence[Sequence[int]], stops: frozenset[int]) -> Iterator[Text]:
    """What `target` says at temperature 0 after each of `prompts`, until it stops. Its own caches stay as they are."""
    for prompt in prompts:
        cached, context, outputs = target.fresh(), list(prompt), list[Output]()
        with target.network.hidden.exposed(readable(target)):
            outputs += cached.prefill(context)
            while len(context) < len(prompt) + WORDS and context[-1] not in stops:
                outputs.append(cached.outputs(context))
                context += device.to_list(mx.argmax(outputs[-1].logits, axis=-1))
        hidden = {path: mx.concatenate([output.hidden[path] for output in outputs]) for path in readable(target)}
        if (text := Text(context, len(prompt), hidden)).words:
            yield text
