"""A whole tuning: what is to be gained is measured, something is trained, and judged on documents it never saw.

What is to be gained is useful by itself: a draft that is right nearly always, or whose guesses are far off, need not be
trained. It is measured in rounds of K on the target's own greedy words after a piece of each document.

Laws: what it trains is kept only if it pays on these. The verdict comes within twice the seconds for training:
where a document takes long, fewer are judged. A process that is killed leaves what it measured, and the same command
goes on after that, to the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

from specdec_cli.apps.tune import figures
from specdec_cli.apps.tune.documents import MORE, SAID, Document, Split, in_turns
from specdec_cli.apps.tune.figures import (
    DocumentRounds,
    Evaluation,
    Judged,
    Measured,
    TimePlan,
    Trained,
    TuningProgress,
    judge,
)
from specdec_cli.apps.tune.kept import TRAINED, Kept, keep
from specdec_cli.apps.tune.trainee import Trainee
from specdec_cli.apps.tune.training import BEST, SHARE_OF_WORDS, TIME_OVER, Training
from specdec_cli.core.errors import Refused, UsageError
from specdec_cli.core.events import RoundDone
from specdec_cli.core.kinds import MODEL, DrafterKind
from specdec_cli.core.request import Request
from specdec_cli.core.stats import Stats
from specdec_cli.engine.training import best_guesses
from specdec_cli.measure import prompts as prompts_of
from specdec_cli.measure.plain import plain_tokens
from specdec_cli.pairs.files import find
from specdec_cli.pairs.tuned import fingerprints
from specdec_cli.session.session import LoadedPair, Session
from specdec_cli.session.signals import Interrupt
from specdec_cli.version import __version__

Report = Callable[[TuningProgress], None]
# A report of what the title says, shown for as long as the context lasts.
Progress = Callable[[str], AbstractContextManager[Report]]
Pieces = dict[str, list[list[int]]]
Found = dict[str, DocumentRounds]
# Guesses among which the target's token counts as near.
NEAR = 4
# Of each kind of bench's prompts.
GENERAL = 2


def pieces_of(documents: Sequence[Document], many: int, seed: int) -> Pieces:
    """So `many` pieces of each of `documents` by its name; the same ones for the same seed."""
    return {one.name: one.pieces(many, seed) for one in documents}


def general_prompts(pair: LoadedPair) -> Pieces:
    """Bench's prompts that the models can read: what a drafter that was tuned on other text may have forgotten.

    The kinds take turns.
    """
    prompts = in_turns(prompts_of.load([kind])[:GENERAL] for kind in prompts_of.KINDS)
    found = {str(one.id): pair.message_tokens([{"role": "user", "content": one.text}]) for one in prompts}
    longest = pair.context.tokens(Request()) or inf
    return {name: [ids] for name, ids in found.items() if len(ids) + SAID < longest}


def measure(
    session: Session,
    pieces: Sequence[list[int]],
    words: int,
    k: int,
    drafter: DrafterKind = MODEL,
    timed: bool = True,
) -> DocumentRounds:
    """Rounds of `k` for so many `words` after the `pieces` of a document; if `timed`, and plain ones after the last."""
    request = Request(max_tokens=words, k=k, drafter=drafter.name, sampling={"temperature": 0.0})
    network, slot = None if drafter.looks_up else session.slot.draft, session.slot
    stats, near, plain, drafted, verified = Stats(), 0, list[float](), list[float](), list[float]()
    for piece in pieces:
        slot.forget()
        said, rejected = list(piece), list[tuple[int, int]]()
        for event in session.reply(piece, request, raw=True):
            if not isinstance(event, RoundDone):
                continue
            round = event.round
            if round.rejected is not None:
                rejected.append((len(said) + round.accepted, round.next))
            if round.index > 0:  # the first pass is the prompt's, and drafts nothing
                stats.fold(round)
            if timed and (len(round.draft) == k if network else round.index > 0):
                drafted.append(round.draft_seconds)
                verified.append(round.verify_seconds)
            said += round.emitted
        best = best_guesses(slot.target, network, said, NEAR) if network else []
        near += sum(token in best[at - 1] for at, token in rejected if best)
    if timed:
        slot.forget()
        plain += [b - a for a, b in pairwise(session.clock() for _ in plain_tokens(session, piece, request))]
    return DocumentRounds(stats, near, plain, drafted, verified)


def measured(found: Mapping[str, DocumentRounds], k: int, drafter: DrafterKind = MODEL) -> Measured:
    """What was `found` by document, together. Seconds are medians; of lookups, which draft up to `k`, means.

    Raises: UsageError where the target says nothing after any of them.
    """
    every, middle = found.values(), fmean if drafter.looks_up else median
    plain, drafted = [*chain(*(one.plain for one in every))], [*chain(*(one.drafted for one in every))]
    if not (plain and drafted):
        raise UsageError(f"the target ends at once after each of {len(found)} documents", MORE)
    said_more = {name: one.stats for name, one in found.items() if one.stats.rounds}
    near, verify_seconds = sum(one.near for one in every), middle(chain(*(one.verified for one in every)))
    return Measured(k, said_more, near, median(plain), middle(drafted), verify_seconds)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where what was trained is kept, or why it is not; `judged` is what that rests on, where it came so far."""

    refusal: str = ""
    judged: Judged | None = None
    place: Path | None = None


def identity(learner: Trainee, parts: Split, minutes: int, predict_only: bool) -> dict[str, Any]:
    """All that decides what is measured and trained: where one of these changes, nothing that was kept is taken."""
    files = find(learner.spec)
    folders = {folder for one in files.checkpoints for folder in (one.folder, one.adapter) if folder}
    folders |= {file.parent for file in files.head.files} if files.head else set()
    read = [(file, file.stat()) for folder in sorted(folders) for file in sorted(folder.glob("*.[js]*"))]
    stamps = [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in read]
    options = [learner.what, learner.k, learner.seed, minutes, predict_only, __version__]
    return {"options": options, "files": stamps, "texts": asdict(parts)}


class Tuning:
    """Of `learner` within so many `seconds` of training, by lessons of at most `pieces`."""

    def __init__(
        self, learner: Trainee, parts: Split, seconds: float, kept: Kept, pieces: int, predict_only: bool = False
    ) -> None:
        self.learner, self.parts, self._seconds, self._kept, self._pieces = learner, parts, seconds, kept, pieces
        self._first, self._before = learner.before(), Found()
        self._general = general_prompts(self._first)
        drafters = 2 + len(learner.others)
        word, self._ready = kept.decided("word", self._word_seconds), kept.decided("ready", lambda: kept.spent)
        self.plan = TimePlan.within(seconds, word, drafters, len(parts.judged), len(self._general))
        self._piece, self._took = self.plan.piece, list[float]()  # the most that one took, and what each did
        # Half of the time for the target's own words: there may be few to say.
        self._later = 0.0 if predict_only else seconds * (1 - SHARE_OF_WORDS / 2) + self.plan.after

    def _word_seconds(self) -> float:
        """A drafted word's of a whole piece, with its part of the plain ones and of reading.

        From answers of two lengths, since reading, which is most of a short one, is done once. Of the time of such an
        answer half at least is its words'. The first one may compile.
        """
        session, few, more = self._first.session(self._first.slot(), self._kept.clock), SAID // 16, SAID // 4
        (piece,) = pieces_of(self.parts.judged[:1], 1, self.learner.seed).values()
        taken = list[float]()
        for words in (more, few, more):
            began = self._kept.clock()
            plain = sum(measure(session, piece, words, self.learner.k).plain)
            taken.append(max(self._kept.clock() - began - plain * (1 - 1 / figures.EVERY), 0.0))
        _, short, long = taken
        word = max((long - short) / (more - few), long / more / 2)
        return (long + (SAID - more) * word) / SAID

    @property
    def left(self) -> float:
        """Seconds until the verdict, about."""
        return max(self._ready + self.plan.before + self._later - self._kept.spent, min(self.plan.after, self._later))

    def measure(self, report: Report) -> Measured:
        """What is to be gained. Raises: UsageError, OSError."""
        judged = pieces_of(self.parts.judged[: self.plan.documents], self.plan.pieces, self.learner.seed)
        self._before = self._rounds(
            "before", self._first, judged, "measuring", report, self._later, self._later, figures.FEWEST
        )
        return measured(self._before, self.learner.k)

    def train(self, name: str, progress: Progress, on_trained: Callable[[Trained], None]) -> Verdict:
        """Train, judge, and keep by `name` what pays. `on_trained` hears how it went, before it is judged.

        Raises: OSError, Refused, NotAvailable, UsageError.
        """
        with progress("training") as report:
            done = self.learn(report)
        on_trained(done)
        if not done.best:
            return Verdict("no step agreed better with the target on the watched documents")
        try:
            with progress("judging") as report:
                judged = self.judge(done.best, report)
        except Refused as error:  # a head that guesses hardly more than luck does
            return Verdict(error.message)
        refusal = judged.judgement.refusal
        return Verdict(refusal, judged, None if refusal else self._keep(name, judged))

    def learn(self, report: Report) -> Trained:
        """Raises: OSError, Refused, NotAvailable."""
        learner, after = self.learner, self.plan.after
        likely = after * self._usual / self.plan.piece

        def trained() -> Trained:
            with Interrupt() as interrupt:
                training = Training(
                    learner.pair,
                    learner.student(),
                    self._kept,
                    self._seconds,
                    learner.seed,
                    lambda now: report(replace(now, seconds=now.seconds + likely)),
                    lambda: "it was interrupted" if interrupt.requested() else TIME_OVER * self._late(after),
                    pieces=self._pieces,
                    piece_bytes=learner.piece_bytes,
                )
                return training.run(self.parts)

        done = self._kept.made(TRAINED, trained)
        return Trained(**{**done, "looks": tuple(Evaluation(*look) for look in done["looks"])})

    def judge(self, best: int, report: Report) -> Judged:
        """By the weights of step `best`. Raises: OSError, UsageError; Refused for a head like luck."""
        learner, plan, k = self.learner, self.plan, self.learner.k
        after, beside, both = learner.after(self._kept.folder / BEST), dict[str, Measured](), list[Measured]()
        judged = pieces_of([one for one in self.parts.judged if one.name in self._before], plan.pieces, learner.seed)
        later = plan.after - plan.before
        found = self._rounds(f"after-{best}", after, judged, "judging", report, later, fewest=figures.FEWEST)
        prompts = dict([*self._general.items()][: plan.prompts])
        for kind in learner.others:
            with suppress(UsageError):  # there may be no time for any of them
                also = self._rounds(kind.name, learner.pair, judged, f"judging {kind.about}", report, drafter=kind)
                beside[kind.about] = measured(also, k, kind)
        with suppress(UsageError):  # the target may say nothing after any of them
            parts = ("general", self._first, "before"), (f"general-{best}", after, "after")
            general = [
                self._rounds(name, pair, prompts, f"judging on bench's prompts, {when}", report)
                for name, pair, when in parts
            ]
            both = [measured(one, k) for one in general]
        before, tuned = measured({name: self._before[name] for name in found}, k), measured(found, k)
        return Judged(before, tuned, judge(before, tuned, learner.same_cost, learner.new), both, beside)

    def _keep(self, name: str, judged: Judged) -> Path:
        """Gives what was trained its place by `name`. Raises: OSError."""
        learner, spec = self.learner, self.learner.spec
        target, *drafts = find(replace(spec, pair=replace(spec.pair, draft_adapter=None))).checkpoints
        bound = fingerprints(target, drafts[0] if drafts and learner.what == "draft" else None)
        record = {"what": learner.what, "of": spec.pair.name, "sha256": bound, "documents": len(self.parts.trained)}
        record |= {"seed": learner.seed, "k": learner.k, "speed": round(judged.judgement.speed, 3)}
        return keep(self._kept.folder / BEST, name, record)

    def _rounds(
        self,
        kept_as: str,
        pair: LoadedPair,
        pieces: Pieces,
        doing: str,
        report: Report,
        later: float = 0.0,
        reserved: float = 0.0,
        fewest: int = 0,
        drafter: DrafterKind = MODEL,
    ) -> Found:
        """Of each document, or of `fewest` until time is short; seconds are needed `later`, and of them `reserved`."""
        session, many, found = pair.session(pair.slot(), self._kept.clock), len(pieces), Found()
        for at, (name, some) in enumerate(pieces.items()):
            if is_new := not self._kept.get(f"{kept_as}-{at}"):
                if at >= fewest and self._late(self._piece * len(some) + reserved):
                    break
                report(TuningProgress(doing, (many - at) * self._usual * len(some) + later, at + 1, many))
            timed = at % figures.EVERY == 0 and at < figures.EVERY * figures.TIMED
            timed |= not any(one.drafted for one in found.values())  # where it ended at once
            make = partial(measure, session, some, self.plan.words, self.learner.k, drafter, timed)
            began = self._kept.clock()
            found[name] = DocumentRounds.of(self._kept.made(f"{kept_as}-{at}", make))
            took = (self._kept.clock() - began) / max(len(some), 1)
            self._piece = max(self._piece, took)
            self._took += [took] * is_new
        return found

    @property
    def _usual(self) -> float:
        """Seconds of a piece, as they were so far."""
        return fmean(self._took) if self._took else self.plan.piece

    def _late(self, needed: float) -> bool:
        """Whether there is no time for what takes so many seconds."""
        return self._kept.spent + needed > figures.LIMIT * self._seconds
