"""A draft learns what its target says after pieces of the user's documents, for so many minutes.

Law: at its end, however it comes (time, Ctrl-C, no more progress, a loss that is no number), the folder holds the best
adapter so far, by documents that are neither learned from nor judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from random import Random
from typing import cast

from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import size
from specdec_cli.engine import device
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.training import Lesson, Student, own_words
from specdec_cli.pairs.limits import limit_bytes
from specdec_cli.session.session import LoadedPair
from specdec_cli.tune.documents import PIECE, SAID, Document, Split
from specdec_cli.tune.figures import Progress, Trained

# Pieces of a lesson. Of the time, so much is for the target's own words.
PIECES, SHARE_OF_WORDS = 8, 0.4
# Pieces of a document that is learned from, or watched; steps between two looks at these; looks without progress.
MOST_PIECES, WATCHED_PIECES, LOOK_STEPS, PATIENCE = 8, 2, 25, 12
# Arrays of logits in float32 that a step keeps at once.
KEPT_ARRAYS = 6


def require_memory(pair: LoadedPair) -> None:
    """Raises: DoesNotFit where it would need more than this device may use: both models, the draft again in float32."""
    draft, target = cast(CachedModel, pair.first.draft), pair.first.target
    kept = PIECES * (PIECE + SAID) * target.vocab_size * KEPT_ARRAYS * 4
    need = pair.first.weight_bytes + 2 * draft.weight_bytes + kept
    if need > (limit := limit_bytes(device.usable_bytes())):
        what = f"training {pair.names[1]} beside {pair.names[0]} needs {size(need)}; {size(limit)} are usable"
        raise DoesNotFit(what, "specdec tune --predict-only needs no more than a reply; or take a smaller pair")


class Training:
    """One training in `folder`, which gets the lessons and the adapter."""

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
    ) -> None:
        self._pair, self._student, self._folder, self._seed = pair, student, folder, seed
        self._report, self._cancelled, self._clock = report, cancelled, clock
        self._end, self._words_end = clock() + seconds, clock() + seconds * SHARE_OF_WORDS

    def run(self, parts: Split) -> Trained:
        """Raises: OSError."""
        pieces = [piece for document in parts.watched for piece in document.pieces(WATCHED_PIECES, self._seed)]
        watched = [self._listen(pieces[at : at + PIECES], 0) for at in range(0, len(pieces), PIECES)]
        lessons = [*self._lessons(parts.trained)]
        words = len(lessons) * PIECES * SAID
        try:
            return self._learn(lessons, watched, words)
        finally:
            for path in lessons:
                path.unlink(missing_ok=True)

    def _listen(self, pieces: list[list[int]], number: int) -> Lesson:
        """The target's own words: the even lessons greedy, the odd ones at temperature 1."""
        ends = self._pair.tokenizer.stop_tokens
        return own_words(self._pair.first.target, pieces, SAID, float(number % 2), self._seed + number, ends)

    def _lessons(self, documents: tuple[Document, ...]) -> Iterator[Path]:
        """Kept on disk, as many as there is time for, at least two."""
        pieces = [piece for document in documents for piece in document.pieces(MOST_PIECES, self._seed + 1)]
        Random(self._seed).shuffle(pieces)
        for number, at in enumerate(range(0, len(pieces), PIECES)):
            left = self._words_end - self._clock()
            if number > 1 and (self._cancelled() or left <= 0):
                return
            self._report(Progress("listening", max(left, 0.0), number * PIECES))
            path = self._folder / f"lesson-{number}.safetensors"
            self._listen(pieces[at : at + PIECES], number).save(path)
            yield path

    def _learn(self, lessons: list[Path], watched: list[Lesson], words: int) -> Trained:
        student, order, waiting, began = self._student, Random(self._seed), list[Path](), self._clock()
        first = best = now = student.agreement(watched)
        step, best_step, ended = 0, 0, ""
        while not ended:
            left = self._end - self._clock()
            waiting = waiting or order.sample(lessons, len(lessons))
            loss = student.step(Lesson.read(waiting.pop()), 1 - left / max(self._end - began, 1e-9))
            step += isfinite(loss)
            if not isfinite(loss):
                ended = f"its loss was {loss} at step {step + 1}"
            elif self._cancelled():
                ended = "it was interrupted"
            elif left <= 0:
                ended = "its time was over"
            if step % LOOK_STEPS == 0 or ended:
                now = student.agreement(watched)
                if now > best:
                    best, best_step = now, step
                    student.save(self._folder)
                elif step - best_step >= PATIENCE * LOOK_STEPS:
                    ended = ended or f"{PATIENCE} looks brought nothing better"
            self._report(Progress("learning", max(left, 0.0), step, loss, (first, now)))
        return Trained(step, best_step, words, ended)
