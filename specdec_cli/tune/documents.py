"""The user's text as documents: read, told apart from near-duplicates, and split.

Law: a document lies wholly in one part, and which one depends on the seed and the documents alone. None that is watched
or learned from shares more than SHARED of its runs of tokens with those that are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import count
from specdec_cli.core.textfile import decode_text

# Characters of a document that count, tokens of a piece and of what is said after it.
LONGEST, MOST_FILES = 20_000, 4000
PIECE, SAID = 64, 64
# Documents that a split needs: a quarter is judged, an eighth is watched while training.
FEWEST, MOST_JUDGED, MOST_WATCHED = 16, 48, 16
RUN, SHARED = 24, 0.1
MORE = "name more: specdec tune --text FOLDER --text FILE …"


@dataclass(frozen=True, slots=True)
class Document:
    """A text by its unique `name`, as ids."""

    name: str
    ids: tuple[int, ...]

    def pieces(self, number: int, seed: int) -> list[list[int]]:
        """Up to `number` stretches of PIECE tokens, from places that depend on seed and name."""
        places = range(len(self.ids) - PIECE + 1)
        drawn = Random(f"{seed} {self.name}").sample(places, min(number, len(places)))
        return [list(self.ids[at : at + PIECE]) for at in drawn]


@dataclass(frozen=True, slots=True)
class Split:
    """Documents that the result is `judged` on, that are `watched` while training, and that are learned from.

    `dropped` were too much like a judged one.
    """

    judged: tuple[Document, ...]
    watched: tuple[Document, ...]
    trained: tuple[Document, ...]
    dropped: tuple[str, ...] = ()


def read_texts(paths: Sequence[Path], tell: Callable[[str], None]) -> dict[str, str]:
    """Text by name, of files and of all in folders; what is no text in a folder is left out, and `tell` hears of it.

    Raises: UsageError for a path that is missing or cannot be read, and for a file that is not UTF-8.
    """
    found: dict[str, str] = {}
    left_out = 0
    for path in paths:
        if not path.exists():
            raise UsageError(f"--text {path} does not exist", "name files, or folders of them")
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        shown = [one for one in inside if not any(part.startswith(".") for part in one.relative_to(path).parts)]
        if len(shown) > MOST_FILES:
            tell(f"the first {MOST_FILES} of {len(shown)} files in {path} are read")
        for file in (one for one in shown[:MOST_FILES] if one.is_file()):
            try:
                found[str(file.resolve())] = decode_text(file.read_bytes())[:LONGEST]
            except UnicodeDecodeError as error:
                if file == path:
                    what = f"--text {path} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
                    raise UsageError(what, f"convert it: iconv -f latin1 -t utf-8 {path}") from error
                left_out += 1
            except OSError as error:
                raise UsageError(f"--text {file} cannot be read: {error.strerror}", "name files of your own") from error
    if left_out:
        tell(f"{count(left_out, 'file')} left out: no UTF-8 text")
    return found


def split(documents: Iterable[Document], seed: int) -> Split:
    """Raises: UsageError where too few are long enough, with both numbers."""
    known = {document.ids: document for document in sorted(documents, key=lambda one: one.name)}
    long = sorted((one for one in known.values() if len(one.ids) > PIECE), key=lambda one: one.name)
    if len(long) < FEWEST:
        short = f", and {len(known) - len(long)} more are shorter" if len(known) > len(long) else ""
        what = f"{count(len(long), 'document')} of more than {PIECE} tokens{short}; {FEWEST} are needed"
        raise UsageError(f"too little text: {what}", MORE)
    Random(seed).shuffle(long)
    first = min(len(long) // 4, MOST_JUDGED)
    judged, others = long[:first], long[first:]
    seen = {run for document in judged for run in _runs(document)}
    near = {one.name for one in others if _share(one, seen) > SHARED}
    fresh = [one for one in others if one.name not in near]
    second = min(len(long) // 8, MOST_WATCHED)
    if len(fresh) <= second:
        raise UsageError(f"all {len(others)} documents to learn from repeat the {len(judged)} to be judged on", MORE)
    return Split(tuple(judged), tuple(fresh[:second]), tuple(fresh[second:]), tuple(sorted(near)))


def _runs(document: Document) -> set[tuple[int, ...]]:
    """Every stretch of RUN tokens."""
    return {document.ids[at : at + RUN] for at in range(max(len(document.ids) - RUN + 1, 1))}


def _share(document: Document, seen: set[tuple[int, ...]]) -> float:
    """Of its runs, those that were `seen`."""
    runs = _runs(document)
    return len(runs & seen) / len(runs)
