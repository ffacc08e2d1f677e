"""Fill-in-the-middle: a prompt from what stands before and after a gap. A model is known by its tokens alone.

A family's marks must be tokens of their own in the vocabulary; a model without any cannot fill. What a user's text
spells like a mark stays text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.vocab import Spellings

# Names that nobody gives.
PROJECT, FILE = "project", "file"
# Between other files where the family has no mark for them, as llama.cpp does.
SNIPPET = "\n\n--- snippet ---\n\n"

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class FimFamily:
    """The marks of one kind of training; a `middle` that is empty: the answer goes on after the text before the gap.

    `repository` and `file` come before names. `suffix_first`: the text after the gap comes first. `named_inside`: the
    name of the file with the gap comes after the mark of its text, and no line ends after the repository's.
    """

    prefix: str
    suffix: str
    middle: str = ""
    suffix_first: bool = False
    repository: str = ""
    file: str = ""
    named_inside: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """Those without which nothing is filled."""
        return tuple(mark for mark in (self.prefix, self.suffix, self.middle) if mark)


FAMILIES = (
    # Qwen2.5-Coder and Qwen3-Coder (2409.12186), then CodeGemma.
    FimFamily("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", repository="<|repo_name|>", file="<|file_sep|>"),
    FimFamily("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", file="<|file_separator|>"),
    # StarCoder2 (2402.19173); Granite Code, SmolLM and the first StarCoder have its three marks.
    FimFamily(
        "<fim_prefix>", "<fim_suffix>", "<fim_middle>", repository="<repo_name>", file="<file_sep>", named_inside=True
    ),
    FimFamily("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    FimFamily("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder, with bars of its own
    FimFamily("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama (2308.12950)
    FimFamily("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", suffix_first=True),  # Seed-Coder
    FimFamily("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM-4
    FimFamily("<|prefix|>", "<|suffix|>", "<|middle|>"),  # Falcon-H1
    FimFamily("[PREFIX]", "[SUFFIX]", suffix_first=True),  # Codestral
)
# Tokens that end an answer wherever a vocabulary has them: the next file begins, or nothing comes any more.
ENDS = (
    *("<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<|file_sep|>", "<file_sep>", "<|file_separator|>"),
    *("<|repo_name|>", "<repo_name>", "<reponame>", "<filename>", "<|endoftext|>", "<|end_of_text|>", "<|EOT|>"),
    "▁<EOT>",
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Text `before` and `after` what is wanted, what is already there of it, and other `files` as (name, text)."""

    before: str
    after: str
    begun: str = ""
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Filling:
    """A prompt as ids; `ends` are the lengths of its beginnings that the next prompt will probably share."""

    tokens: tuple[int, ...]
    ends: tuple[int, ...]


class Fill:
    """How one model fills gaps; `stop_tokens` end what it writes into one."""

    def __init__(self, tokenizer: Tokenizer, family: FimFamily, added: dict[str, int], special: Iterable[int]) -> None:
        self._tokenizer, self._family, self._added = tokenizer, family, added
        self._opening = tokenizer.encode("")
        self.stop_tokens = tuple(added[mark] for mark in (*family.marks, *ENDS) if mark in added)
        texts = {token: text for text, token in added.items()}
        self._spellings = Spellings({texts[token] for token in (*special, *self.stop_tokens)})

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Fill | None:
        """How the model of `tokenizer` does it; None if it cannot."""
        tokens = tokenizer.added_tokens()
        added = {text: token for token, (text, _) in tokens.items()}
        found = [family for family in FAMILIES if all(mark in added for mark in family.marks)]
        if not found:
            return None
        best = next((family for family in found if family.file in added), found[0])
        return cls(tokenizer, best, added, (token for token, (_, special) in tokens.items() if special))

    def prompt(self, gap: Gap) -> Filling:
        """The ids that ask for what `gap` lacks: other files first, what is there of it last."""
        family = self._family
        head, name = self._files(gap.files)
        before = [*self._mark(family.prefix), *name, *self._ids(gap.before, self._first)]
        after = [*self._mark(family.suffix), *self._ids(gap.after)]
        tokens = [*self._opening, *head, *(after if family.suffix_first else ()), *before]
        ends = (len(self._opening) + len(head), len(tokens))
        tokens += [] if family.suffix_first else after
        return Filling((*tokens, *self._mark(family.middle), *self._ids(gap.begun)), ends)

    def _files(self, files: Sequence[tuple[str, str]]) -> tuple[list[int], list[int]]:
        """(other files, what comes behind the mark of the text before the gap)."""
        family, found = self._family, list[int]()
        if not files:
            return [], []
        if family.file not in self._added:
            return self._ids("".join(SNIPPET + text for _, text in files), self._first), []
        if family.repository in self._added:
            found += [*self._mark(family.repository), *self._ids(PROJECT + "\n" * (not family.named_inside))]
        for name, text in files:
            found += [*self._mark(family.file), *self._ids(f"{name or FILE}\n{text}")]
        found += self._mark(family.file)
        own = self._ids(FILE + "\n")
        return (found, own) if family.named_inside else (found + own, [])

    def _mark(self, mark: str) -> list[int]:
        return [self._added[mark]] if mark else []

    def _ids(self, text: str, encode: Encode | None = None) -> list[int]:
        """Ids of a text that is never a mark: one that spells some is encoded in parts."""
        first, *rest = self._spellings.parts(text)
        after = self._tokenizer.encode_after
        return [*(encode or after)(first), *(token for part in rest for token in after(part))]

    def _first(self, text: str) -> list[int]:
        """Ids of a text of its own, without what the model begins every text with."""
        return self._tokenizer.encode(text)[len(self._opening) :]
