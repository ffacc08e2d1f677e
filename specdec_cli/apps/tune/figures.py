"""What is measured, shown and decided (pure). The unit of every interval is a document, and gains are paired by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from math import log
from typing import Any, NamedTuple

from specdec_cli.apps.tune.documents import SAID
from specdec_cli.core.gain import round_steps, speedup
from specdec_cli.core.stats import Stats, ratio
from specdec_cli.measure.intervals import Interval, interval_over
from specdec_cli.measure.prompts import PromptId

# A gain in tokens a pass that is worth the training.
WORTH = 0.02
# Pieces of all judged documents together; the fewest documents that give an interval, and as many as give a good one.
PIECES, FEWEST, ENOUGH = 64, 2, 8
# Plain steps are timed on every fourth document, of 6 of them.
EVERY, TIMED = 4, 6
# Work ends after LIMIT times the time for training: the verdict comes within twice that. So much of that time is
# for measuring, and of this so much for bench's prompts.
LIMIT, MEASURING, GENERAL = 1.8, 0.75, 0.2


@dataclass(frozen=True, slots=True)
class DocumentRounds:
    """Rounds after pieces of one document; seconds of `plain` steps and of rounds, where these were timed."""

    stats: Stats
    near: int
    plain: list[float]
    drafted: list[float]
    verified: list[float]

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> DocumentRounds:
        """From a JSON object."""
        return cls(**{**kept, "stats": Stats(**kept["stats"])})


@dataclass(frozen=True, slots=True)
class TimePlan:
    """What there is time for: `words` after each of so many `pieces` of so many `documents`, and `prompts` of bench's.

    All `drafters` say them, and `piece` are the seconds of one piece's words.
    """

    documents: int
    pieces: int
    words: int
    prompts: int
    piece: float
    drafters: int

    @classmethod
    def within(cls, seconds: float, word: float, drafters: int, documents: int, prompts: int) -> TimePlan:
        """The most in a share of `seconds`, where a word takes so many: fewer pieces first, words, then documents."""
        time, whole = MEASURING * seconds, max(PIECES // documents, 1)
        for pieces, words in ((whole, SAID), (1, SAID), (1, SAID // 2), (1, SAID // 4)):
            piece = max(words * word, 1e-9)
            many = int((1 - GENERAL) * time / drafters / (pieces * piece))
            if many >= (documents if pieces > 1 else min(ENOUGH, documents)):
                break
        many = max(min(many, documents), FEWEST)
        return cls(many, pieces, words, min(prompts, int(GENERAL * time / 2 / piece)), piece, drafters)

    @property
    def before(self) -> float:
        """Seconds of measuring before training."""
        return self.documents * self.pieces * self.piece

    @property
    def after(self) -> float:
        """Seconds of judging."""
        return (self.drafters - 1) * self.before + 2 * self.prompts * self.piece


@dataclass(frozen=True, slots=True)
class Measured:
    """Held-out documents in rounds of `k`: the `stats` of each by name, and the `near` of all rejections.

    Seconds are of a plain step, and of a whole round's draft and verification.
    """

    k: int
    stats: dict[str, Stats]
    near: int
    plain_seconds: float
    draft_seconds: float
    verify_seconds: float

    @property
    def acceptance(self) -> Interval:
        """Judged acceptance, the mean over documents."""
        return interval_over({PromptId("", name): rate for name, rate in self.rates.items()})

    @property
    def rates(self) -> dict[str, float]:
        rates = {name: stats.judged_acceptance_rate for name, stats in self.stats.items()}
        return {name: rate for name, rate in rates.items() if rate is not None}

    @property
    def positions(self) -> list[float]:
        """The shares of the rounds with a draft token at each position that accepted it."""
        every = self.stats.values()
        drafted, accepted = (
            [*map(sum, zip_longest(*lists, fillvalue=0))]
            for lists in ([one.drafted_at for one in every], [one.accepted_at for one in every])
        )
        return Stats(drafted_at=drafted, accepted_at=accepted).acceptance_per_position

    @property
    def tokens_a_pass(self) -> float:
        """Of all documents together."""
        every = self.stats.values()
        return sum(one.emitted_tokens for one in every) / sum(one.rounds for one in every)

    @property
    def near_share(self) -> float | None:
        """The share of rejections where the target's token is among the draft's best four."""
        return ratio(self.near, sum(one.rejected_n for one in self.stats.values()))

    @property
    def steps(self) -> float:
        """Plain steps of a round. None takes less than one: where it was measured so, the machine was busy."""
        step = self.plain_seconds
        return max(round_steps(self.k, self.draft_seconds / self.k / step, self.verify_seconds / step), 1.0)

    @property
    def speedup(self) -> float:
        """Over plain decoding, as it is."""
        return speedup(self.tokens_a_pass, self.steps)

    @property
    def perfect(self) -> float:
        """The same of a draft of this cost that is always right."""
        return speedup(self.k + 1, self.steps)

    @property
    def nothing_to_gain(self) -> str:
        """Why no training can pay; empty where it might."""
        if self.perfect <= 1:
            return f"even a draft that is always right would not pay: {self.perfect:.2f}× plain decoding"
        if self.k + 1 < self.tokens_a_pass * (1 + WORTH):
            return f"{self.tokens_a_pass:.2f} tokens a pass leave less than 2 % to the {self.k + 1} of a perfect draft"
        return ""

    def log_passes(self) -> dict[PromptId, float]:
        """The logarithm of each document's tokens a pass."""
        return {PromptId("", name): log(one.emitted_tokens / one.rounds) for name, one in self.stats.items()}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the training changed: `acceptance` in shares, `passes` as a ratio of tokens a pass, both by document.

    `costs` is a round's cost before over that after, 1 where both are the same by construction. `plain` is the speed
    over plain decoding where nothing drafted before.
    """

    acceptance: Interval
    passes: Interval
    costs: float = 1.0
    plain: float | None = None

    @property
    def speed(self) -> float:
        """What is said in the same time, as a ratio: over plain decoding where nothing drafted before."""
        return self.passes.mean * self.costs if self.plain is None else self.plain

    @property
    def refusal(self) -> str:
        """Why it is not kept; empty where it is."""
        if self.acceptance.low <= 0:
            worse = "fell" if self.acceptance.high < 0 else "did not rise beyond noise"
            return f"acceptance {worse} on documents it never saw"
        if self.speed <= 1 + WORTH:
            change, than = 100 * (self.speed - 1), "before" if self.plain is None else "plain decoding"
            found = f"{abs(change):.1f} % {'slower' if change < 0 else 'faster'} than {than}"
            return f"{found}, and less than 2 % faster is not noticed"
        return ""


@dataclass(frozen=True, slots=True)
class Judged:
    """Both measurements of the same documents, and what they say; `general` of bench's prompts, before and after.

    `beside` are others, who draft without any training, by their names.
    """

    before: Measured
    after: Measured
    judgement: Judgement
    general: list[Measured]
    beside: dict[str, Measured]


def judge(before: Measured, after: Measured, same_cost: bool = True, new: bool = False) -> Judgement:
    """Both of the same documents. `same_cost`: rounds cost the same; `new`: nothing drafted before."""
    old, rates = before.rates, after.rates
    changed = {PromptId("", name): rates[name] - rate for name, rate in old.items() if name in rates}
    costs = 1.0 if same_cost else before.steps / after.steps
    return Judgement(interval_over(changed), passes(before, after), costs, after.speedup if new else None)


def passes(before: Measured, after: Measured) -> Interval:
    """Tokens a pass after over those before, by document."""
    first, second = before.log_passes(), after.log_passes()
    return interval_over({at: second[at] - value for at, value in first.items() if at in second}).exp()


class Evaluation(NamedTuple):
    """After `step` steps the agreement on `watched` documents, and the mean `loss` since the look before."""

    step: int
    watched: float
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """What is going on, `number` of `of`, with the `looks` so far; `seconds` are left until the verdict."""

    doing: str
    seconds: float
    number: int
    of: int
    loss: float | None = None
    looks: tuple[Evaluation, ...] = ()


@dataclass(frozen=True, slots=True)
class Trained:
    """All `looks`; the best weights are of step `best`, 0: none were better than those it began with."""

    looks: tuple[Evaluation, ...]
    best: int
    words: int
    ended: str
