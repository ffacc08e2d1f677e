"""A drafter learns what its target says after pieces of the user's documents, for so many minutes.

Laws: at its end, however it comes (time, Ctrl-C, no more progress, a loss that is no number), BEST holds the best
weights so far, by documents that are neither learned from nor judged. A process that is killed leaves the folder such
that the same training goes on in it to the same end: how many lessons and steps there are is decided once, from what
the first of them took, and all else depends on the seed and the step alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from random import Random

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import size
from specdec_cli.engine import device
from specdec_cli.engine.training import Lesson, Student, own_words, read_arrays, save_arrays
from specdec_cli.pairs.limits import limit_bytes
from specdec_cli.session.session import LoadedPair
from specdec_cli.tune.documents import SAID, Document, Split
from specdec_cli.tune.figures import Look, Progress, Trained
from specdec_cli.tune.kept import STATE

# Pieces of a lesson, where memory is enough for them. Of the time, so much is for the target's own words.
PIECES, SHARE_OF_WORDS = 8, 0.4
# Pieces of a document that is learned from, or watched; steps between two looks at these; looks without progress.
MOST_PIECES, WATCHED_PIECES, LOOK_STEPS, PATIENCE = 32, 2, 25, 12
SCHEDULE, BEST = "schedule.json", "best"


def fitting_pieces(pair: LoadedPair, learning_bytes: int, piece_bytes: int) -> int:
    """`PIECES`, or half of that and so on: with so many to a lesson, training fits into what this device may use.

    `learning_bytes` are its weights', their gradient's and two averages of it; `piece_bytes` the values that a step
    keeps of one piece. Raises: DoesNotFit where one piece is too much.
    """
    limit, pieces = limit_bytes(device.usable_bytes()), PIECES
    while (need := pair.first.weight_bytes + learning_bytes + pieces * piece_bytes) > limit:
        if pieces == 1:
            what = f"training beside {pair.names[0]} needs {size(need)}; {size(limit)} are usable"
            raise DoesNotFit(what, "specdec tune --predict-only needs no more than a reply; or take a smaller pair")
        pieces //= 2
    return pieces


class Training:
    """One training in `folder`, which gets the lessons, the state of the training, and in BEST the best weights."""

    def __init__(
        self,
        pair: LoadedPair,
        student: Student,
        folder: Path,
        seconds: float,
        seed: int,
        report: Callable[[Progress], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        pieces: int = PIECES,
        piece_bytes: int = 0,
    ) -> None:
        """`pieces` make a lesson, and a step keeps `piece_bytes` of values for each."""
        self._pieces, self._piece_bytes = pieces, piece_bytes
        self._pair, self._student, self._folder, self._seed = pair, student, folder, seed
        self._report, self._cancelled, self._clock, self._seconds = report, cancelled, clock, seconds

    def run(self, parts: Split) -> Trained:
        """Raises: OSError."""
        many = self._pieces = self._decided("pieces", lambda: self._pieces)
        pieces = [piece for document in parts.watched for piece in document.pieces(WATCHED_PIECES, self._seed)]
        watched = [self._listen(pieces[at : at + many], 0) for at in range(0, len(pieces), many)]
        lessons = self._write_lessons(parts.trained)
        with device.keeping_freed(many * self._piece_bytes):  # each step frees what the next one needs
            return self._learn(lessons, watched)

    def _listen(self, pieces: list[list[int]], number: int) -> Lesson:
        """The target's own words: the even lessons greedy, the odd ones at temperature 1."""
        ends = self._pair.tokenizer.stop_tokens
        return own_words(self._pair.first.target, pieces, SAID, float(number % 2), self._seed + number, ends)

    def _decided(self, name: str, decide: Callable[[], int]) -> int:
        """A number that the first process to need it decides, and every later one keeps."""
        path = self._folder / SCHEDULE
        schedule = jsonfile.read_or_empty(path)
        if name not in schedule:
            schedule[name] = decide()
            new = path.with_suffix(".new")
            new.write_text(json.dumps(schedule), encoding="utf-8")
            new.rename(path)
        return int(schedule[name])

    def _write_lessons(self, documents: tuple[Document, ...]) -> list[Path]:
        """On disk, as many as there is time for, at least two where there are so many pieces.

        The documents take turns, so that little time is no reason to hear of a few of them only.
        """
        turns = zip_longest(*(document.pieces(MOST_PIECES, self._seed + 1) for document in documents))
        pieces = [piece for turn in turns for piece in turn if piece is not None]
        groups = [pieces[at : at + self._pieces] for at in range(0, len(pieces), self._pieces)]
        paths, took = list[Path](), 0.0

        def many_in_time() -> int:
            return max(min(len(groups), int(self._seconds * SHARE_OF_WORDS / max(took, 1e-9))), 2)

        for number, group in enumerate(groups):
            path = self._folder / f"lesson-{number}.safetensors"
            if not path.is_file():
                began = self._clock()
                lesson = self._listen(group, number)
                took = self._clock() - began
                self._decided("lessons", many_in_time)
                lesson.save(path)
            paths.append(path)
            many = self._decided("lessons", many_in_time)
            self._report(Progress("listening", max(many - number - 1, 0) * took, number + 1, many))
            if len(paths) >= many or (number > 0 and self._cancelled()):
                break
        return paths

    def _steps(self, lesson: Lesson, look_seconds: float) -> int:
        """How many there is time for, from what one takes, and its part of a look."""
        self._student.rehearse(lesson)
        began = self._clock()
        self._student.rehearse(lesson)
        step = self._clock() - began + look_seconds / LOOK_STEPS
        return max(int(self._seconds * (1 - SHARE_OF_WORDS) / max(step, 1e-9)), 1)

    def _learn(self, lessons: list[Path], watched: list[Lesson]) -> Trained:
        student, began = self._student, self._clock()
        looks = self._resume() or [Look(0, student.agreement(watched))]
        took = self._clock() - began
        steps = self._decided("steps", lambda: self._steps(Lesson.read(lessons[0]), took))
        step = looks[-1].step
        best, began, first = _best(looks), self._clock(), step
        losses, best_folder = list[float](), self._folder / BEST
        ended = _end(looks, steps)  # it may have been killed after that
        while not ended:
            loss = student.step(Lesson.read(self._lesson(lessons, step)), step / steps)
            step += isfinite(loss)
            losses.append(loss)
            if not isfinite(loss):
                ended = f"its loss was {loss} at step {step + 1}"
            elif self._cancelled():
                ended = "it was interrupted"
            if step > looks[-1].step and (step % LOOK_STEPS == 0 or step >= steps or ended):
                finite = [one for one in losses if isfinite(one)]
                looks.append(Look(step, student.agreement(watched), sum(finite) / len(finite) if finite else None))
                losses.clear()
                if looks[-1].watched > best.watched:
                    best = looks[-1]
                    best_folder.mkdir(mode=0o700, exist_ok=True)
                    student.save(best_folder)
                ended = ended or _end(looks, steps)
                save_arrays(self._folder / STATE, student.state(), {"looks": json.dumps([list(one) for one in looks])})
            left = (steps - step) * (self._clock() - began) / max(step - first, 1)
            self._report(Progress("learning", left, step, steps, loss, tuple(looks)))
        return Trained(tuple(looks), best.step, len(lessons) * self._pieces * SAID, ended)

    def _lesson(self, lessons: list[Path], step: int) -> Path:
        """Each once a round, in an order that depends on the seed and the round."""
        turn, at = divmod(step, len(lessons))
        return Random(f"{self._seed} {turn}").sample(lessons, len(lessons))[at]

    def _resume(self) -> list[Look]:
        """What was seen up to the state that a killed process left, from which the student goes on; else nothing."""
        path = self._folder / STATE
        if not path.is_file():
            return []
        state, metadata = read_arrays(path)
        looks = [Look(*values) for values in json.loads(metadata["looks"])]
        if _best(looks).step and not (self._folder / BEST).is_dir():  # it was killed after that had been kept
            return []
        self._student.restore(state, looks[-1].step)
        return looks


def _best(looks: list[Look]) -> Look:
    """The first of those that agreed best."""
    return max(looks, key=lambda look: look.watched)


def _end(looks: list[Look], steps: int) -> str:
    """Why a training of so many `steps` is over after `looks`, empty while it is not."""
    if looks[-1].step >= steps:
        return "the time was up"
    return f"{PATIENCE} looks brought nothing better" * (looks[-1].step - _best(looks).step >= PATIENCE * LOOK_STEPS)
