"""A drafter learns what its target says after pieces of the user's documents, for so many minutes.

Laws: at its end, however it comes (time, Ctrl-C, no more progress, a loss that is no number), BEST holds the best
weights so far, by documents that are neither learned from nor judged. A process that is killed leaves the folder such
that the same training goes on in it to the same end: how many lessons and steps there are is decided once, from what
the first of them took, and all else depends on the seed and the step alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from random import Random

from specdec_cli.apps.tune.documents import SAID, Split, in_turns
from specdec_cli.apps.tune.figures import Evaluation, Trained, TuningProgress
from specdec_cli.apps.tune.kept import STATE, Kept
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import size
from specdec_cli.engine import device
from specdec_cli.engine.training import Lesson, Student, own_words, read_arrays, save_arrays
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit, Footprint
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.session.session import LoadedPair

# Pieces of a lesson, where memory is enough for them. Of the time, so much is for the target's own words.
PIECES, SHARE_OF_WORDS = 8, 0.4
# Pieces of a document that is learned from, or watched; steps between two looks at these; looks without progress.
MOST_PIECES, WATCHED_PIECES, LOOK_STEPS, PATIENCE = 32, 2, 25, 12
# Of the lessons that there is time for, one of so many is watched.
WATCHED_SHARE = 4
BEST, TIME_OVER = "best", "the time was up"


def fitting_pieces(spec: PairSpec, pair: LoadedPair, learning_bytes: int, piece_bytes: int) -> int:
    """`PIECES`, or half of that and so on: with so many to a lesson, training fits into what this device may use.

    `learning_bytes` are its weights', their gradient's and two averages of it; `piece_bytes` the values that a step
    keeps of one piece. Raises: DoesNotFit where one piece is too much.
    """

    def sizes(pieces: int) -> tuple[Footprint, ...]:
        return (Footprint(pair.names[0], pair.first.weight_bytes, learning_bytes, pieces * piece_bytes),)

    fit = Fit(find(spec), sizes, device.usable_bytes(), tokens=PIECES)
    while not fit.fits and fit.tokens > 1:
        fit = fit.at(fit.tokens // 2)
    if fit.fits:
        return fit.tokens
    what = f"training beside {pair.names[0]} needs {size(fit.peak_bytes)}; {size(fit.limit_bytes)} are usable"
    raise DoesNotFit(what, "specdec tune --predict-only needs no more than a reply; or take a smaller pair")


class Training:
    """One training that keeps the lessons, the state of the training, and in BEST the best weights."""

    def __init__(
        self,
        pair: LoadedPair,
        student: Student,
        kept: Kept,
        seconds: float,
        seed: int,
        report: Callable[[TuningProgress], None] = lambda _: None,
        stop: Callable[[], str] = lambda: "",
        pieces: int = PIECES,
        piece_bytes: int = 0,
    ) -> None:
        """`pieces` make a lesson, and a step keeps `piece_bytes` of values for each. `stop` says why it must end."""
        self._pieces, self._piece_bytes = pieces, piece_bytes
        self._pair, self._student, self._kept, self._seed = pair, student, kept, seed
        self._report, self._stop, self._clock, self._seconds = report, stop, kept.clock, seconds

    def run(self, parts: Split) -> Trained:
        """Raises: OSError."""
        self._pieces = int(self._kept.decided("pieces", lambda: self._pieces))
        watched, lessons = self._listen(parts)
        with device.keeping_freed(self._pieces * self._piece_bytes):  # each step frees what the next one needs
            return self._learn(lessons, [Lesson.read(path) for path in watched])

    def _listen(self, parts: Split) -> tuple[list[Path], list[Path]]:
        """The lessons on disk that there is time for: of documents that are watched, and that are learned from."""
        watched = self._groups("watched", [one.pieces(WATCHED_PIECES, self._seed) for one in parts.watched])
        learned = self._groups("lesson", [one.pieces(MOST_PIECES, self._seed + 1) for one in parts.trained])
        took = self._kept.decided("lesson", lambda: self._hear(*watched[0]))
        many = int(self._seconds * SHARE_OF_WORDS / max(took, 1e-9))
        watched = watched[: max(many // WATCHED_SHARE, 1)]
        all = watched + learned[: max(many - len(watched), 1)]
        for at, (path, number, pieces) in enumerate(all):
            if path.is_file():
                continue
            if at > len(watched) and self._stop():
                all = all[:at]
                break
            left = self._seconds * (1 - SHARE_OF_WORDS) + (len(all) - at) * took
            self._report(TuningProgress("listening", left, at + 1, len(all)))
            self._hear(path, number, pieces)
        paths = [path for path, *_ in all]
        return paths[: len(watched)], paths[len(watched) :]

    def _groups(self, name: str, pieces: list[list[list[int]]]) -> list[tuple[Path, int, list[list[int]]]]:
        """A file for each lesson, its number, and its pieces, for which the documents take turns."""
        all, many = in_turns(pieces), self._pieces
        groups = [all[at : at + many] for at in range(0, len(all), many)]
        return [(self._kept.folder / f"{name}-{n}.safetensors", n, group) for n, group in enumerate(groups)]

    def _hear(self, path: Path, number: int, pieces: list[list[int]]) -> float:
        """Write the target's own words to `path`, and say the seconds: odd lessons at temperature 1, others greedy."""
        began, ends = self._clock(), self._pair.tokenizer.stop_tokens
        heat = float(number % 2 and path.name.startswith("lesson"))
        own_words(self._pair.first.target, pieces, SAID, heat, self._seed + number, ends).save(path)
        took = self._clock() - began
        self._kept.mark()
        return took

    def _steps(self, lesson: Lesson, look_seconds: float) -> int:
        """How many there is time for, from what one takes, and its part of a look."""
        self._student.warm_up(lesson)
        began = self._clock()
        self._student.warm_up(lesson)
        step = self._clock() - began + look_seconds / LOOK_STEPS
        return max(int(self._seconds * (1 - SHARE_OF_WORDS) / max(step, 1e-9)), 1)

    def _learn(self, lessons: list[Path], watched: list[Lesson]) -> Trained:
        student, began = self._student, self._clock()
        looks = self._resume() or [Evaluation(0, student.agreement(watched))]
        took = self._clock() - began
        steps = int(self._kept.decided("steps", lambda: self._steps(Lesson.read(lessons[0]), took)))
        step = looks[-1].step
        best, began, first = _best(looks), self._clock(), step
        losses, best_folder = list[float](), self._kept.folder / BEST
        ended = _end(looks, steps)  # it may have been killed after that
        while not ended:
            loss = student.step(Lesson.read(self._lesson(lessons, step)), step / steps)
            step += isfinite(loss)
            losses.append(loss)
            ended = self._stop() if isfinite(loss) else f"its loss was {loss} at step {step + 1}"
            if step > looks[-1].step and (step % LOOK_STEPS == 0 or step >= steps or ended):
                finite = [one for one in losses if isfinite(one)]
                looks.append(
                    Evaluation(step, student.agreement(watched), sum(finite) / len(finite) if finite else None)
                )
                losses.clear()
                if looks[-1].watched > best.watched:
                    best = looks[-1]
                    best_folder.mkdir(mode=0o700, exist_ok=True)
                    student.save(best_folder)
                ended = ended or _end(looks, steps)
                seen = {"looks": json.dumps([list(one) for one in looks])}
                save_arrays(self._kept.folder / STATE, student.state(), seen)
                self._kept.mark()
            left = (steps - step) * (self._clock() - began) / max(step - first, 1)
            self._report(TuningProgress("learning", left, step, steps, loss, tuple(looks)))
        return Trained(tuple(looks), best.step, len(lessons) * self._pieces * SAID, ended)

    def _lesson(self, lessons: list[Path], step: int) -> Path:
        """Each once a round, in an order that depends on the seed and the round."""
        turn, at = divmod(step, len(lessons))
        return Random(f"{self._seed} {turn}").sample(lessons, len(lessons))[at]

    def _resume(self) -> list[Evaluation]:
        """What was seen up to the state that a killed process left, from which the student goes on; else nothing."""
        path = self._kept.folder / STATE
        if not path.is_file():
            return []
        state, metadata = read_arrays(path)
        looks = [Evaluation(*values) for values in json.loads(metadata["looks"])]
        if _best(looks).step and not (self._kept.folder / BEST).is_dir():  # it was killed after that had been kept
            return []
        self._student.restore(state, looks[-1].step)
        return looks


def _best(looks: list[Evaluation]) -> Evaluation:
    """The first of those that agreed best."""
    return max(looks, key=lambda look: look.watched)


def _end(looks: list[Evaluation], steps: int) -> str:
    """Why a training of so many `steps` is over after `looks`, empty while it is not."""
    if looks[-1].step >= steps:
        return TIME_OVER
    return f"{PATIENCE} looks brought nothing better" * (looks[-1].step - _best(looks).step >= PATIENCE * LOOK_STEPS)
