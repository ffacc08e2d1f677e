"""A long text as ids, a piece at a time. Law: the ids are those of the whole text encoded at once.

A piece ends where the tokenizer itself cuts, whatever stands around it: before one of its special tokens, and between
words, where its rules never look across. Rules that are not known to be so leave the text whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

# Characters of a piece, some 10 ms of work; a piece grows to the next place where the tokenizer cuts.
PIECE_CHARACTERS = 1 << 14
# Special tokens that are looked for, and the most characters of one: more are not needed, and would be slow to find.
MOST_SPECIAL, LONGEST_TOKEN = 64, 256
# Pieces whose ids are kept: the next turn of a conversation, or a template's other endings, begin with the same ones.
KEPT_PIECES = 64
# Places between words: behind a line's end, and before a space.
LINES, WORDS = r"\n(?=[A-Za-z])", r"[A-Za-z](?= [A-Za-z])"
NO_CUT = "(?!)"
PROBES = {
    LINES: (("\n", "a\n", " \n", "1.\n", "\r\n", "é\n\n", "\t\n"), ("a", "B c", "s'", "the", "z1", "e\u0301", "X\n")),
    WORDS: (("a", "The", "x's", "\n b", "1c", "é d", "(e", "日f", " 'll"), (" a", " B", " s", " the", " z1", " x\n")),
}
# Rules that change a text without looking far, and those that do not split it by what is far away.
LOCAL_NORMALIZERS = {"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace", "Prepend"}
LOCAL_SPLITS = {"Sequence", "Split", "ByteLevel", "Digits", "Metaspace"}
# Signs of a pattern that may look far.
FAR_LOOKS = ("(?<", "(?=", "\\G", ".*", ".+")

Between = Callable[[int], None]
"""Called between two pieces with the number of tokens that the text has at least; what it raises ends the encoding."""


def unwatched(tokens: int) -> None:
    """A `Between` that lets every text be encoded to its end."""


class PieceEncoder:
    """Ids of texts by `backend`, a tokenizer of huggingface's, without what a post-processor puts around them.

    `token_bytes` is the vocabulary, id -> bytes. Safe from any thread; encoding a piece lets other threads run.
    """

    def __init__(self, backend: Any, token_bytes: Callable[[], Mapping[int, bytes]]) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend, self._token_bytes = backend, token_bytes
        self._kept = lru_cache(KEPT_PIECES)(self._encode)

    def ids(self, text: str, between: Between = unwatched) -> list[int]:
        """The ids of `text`, which `between` may end."""
        if len(text) <= PIECE_CHARACTERS:
            return list(self._encode(text))
        between(self.least_tokens(text))
        found: list[int] = []
        for piece in self.pieces(text):
            if found:
                between(len(found))
            found += self._kept(piece)
        return found

    def pieces(self, text: str) -> Iterator[str]:
        """`text`, cut where the tokenizer cuts."""
        begin = 0
        while begin < len(text):
            end = self._cut_from(text, begin + PIECE_CHARACTERS)
            yield text[begin:end]
            begin = end

    def _cut_from(self, text: str, place: int) -> int:
        """The first place from `place` on where `text` may be cut, else its end; other threads run in between."""
        while place < len(text):
            if found := self._cuts.search(text, place, place + PIECE_CHARACTERS):
                return found.end()
            place += PIECE_CHARACTERS - LONGEST_TOKEN
        return len(text)

    def least_tokens(self, text: str) -> int:
        """Tokens that `text` has at least, without encoding it; 0 where that cannot be said."""
        longest = self._longest_bytes
        if not longest or not (text.isascii() or (self._is_byte_level and self._backend.normalizer is None)):
            return 0
        return -(-len(text.encode()) // longest)

    def _encode(self, piece: str) -> tuple[int, ...]:
        # `encode` itself would keep all other threads waiting.
        (encoding,) = self._backend.encode_batch_fast([piece], add_special_tokens=False)
        return tuple(encoding.ids)

    @cached_property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in repr(self._backend.decoder)

    @cached_property
    def _longest_bytes(self) -> int:
        """Bytes of the longest text that one token stands for; 0 where a token may stand for any number."""
        normalizers, splits = _rules(self._backend.normalizer), _rules(self._backend.pre_tokenizer)
        known = [rule["type"] in LOCAL_NORMALIZERS for rule in normalizers]
        known += [rule["type"] in LOCAL_SPLITS and rule.get("behavior") != "Removed" for rule in splits]
        # In no other way than one sign for one space may a text become shorter.
        known += [
            rule["pattern"] == {"String": " "} and bool(rule["content"]) for rule in normalizers if "pattern" in rule
        ]
        strips = any(token.lstrip or token.rstrip for token in self._backend.get_added_tokens_decoder().values())
        tokens = self._token_bytes()
        spelled = {text for text in tokens.values() if len(text) == 1}
        fallback = self._is_byte_level or getattr(self._backend.model, "byte_fallback", False)
        if strips or not fallback or not all(known) or len(spelled) < 256:
            return 0
        return max(map(len, tokens.values()))

    @cached_property
    def _cuts(self) -> re.Pattern[str]:
        """What stands before a place where a text may be cut; none at all where nothing is known."""
        added = list(self._backend.get_added_tokens_decoder().values())
        texts = [token.content for token in added]
        inner = {letter for text in texts for letter in text[1:]}
        strips = [token.content for token in added if token.lstrip or token.rstrip or token.single_word]
        places = []
        if not strips:
            special = [token.content for token in added if token.special and not token.normalized]
            apart = [text for text in special if text[0] not in inner and len(text) < LONGEST_TOKEN]
            places += [f"(?={re.escape(text)})" for text in apart[:MOST_SPECIAL]]
            places += [kind for kind in PROBES if self._cuts_at(kind) and not any(re.search(kind, t) for t in texts)]
        return re.compile("|".join(places) or NO_CUT)

    def _cuts_at(self, kind: str) -> bool:
        """Whether the tokenizer's rules cut at such places, by their kinds and by trying."""
        normalizers, splits = _rules(self._backend.normalizer), _rules(self._backend.pre_tokenizer)
        local = all(rule["type"] in LOCAL_NORMALIZERS for rule in normalizers) and splits
        near = not any(look in json.dumps(rule) for rule in (*normalizers, *splits) for look in FAR_LOOKS)
        if not local or not near or not all(rule["type"] in LOCAL_SPLITS for rule in splits):
            return False
        lefts, rights = PROBES[kind]
        return all(
            self._split(left + right) == self._split(left) + self._split(right) for left in lefts for right in rights
        )

    def _split(self, text: str) -> list[str]:
        if self._backend.normalizer is not None:
            text = self._backend.normalizer.normalize_str(text)
        return [part for part, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]


def _rules(part: Any) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as its simple rules, in order."""
    if part is None:
        return []

    def flat(rule: dict[str, Any]) -> list[dict[str, Any]]:
        inner = rule.get("normalizers") or rule.get("pretokenizers")
        return [one for each in inner for one in flat(each)] if inner else [rule]

    return flat(json.loads(part.__getstate__()))
