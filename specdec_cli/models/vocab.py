"""Tokens as bytes, what spells them in a text, and whether two tokenizers agree (pure).

Tokenizers are compared by ids -> bytes and roles, never by size. Logit widths differ by padding while tokenizers agree
(Qwen2.5: 151936 and 152064); sizes agree while ids differ.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from specdec_cli.core.errors import Refused, UsageError
from specdec_cli.core.format import percent


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


_ALPHABET = _byte_alphabet()


def byte_level(token: str) -> bytes:
    """Each character stands for a byte; a token with another character is its own UTF-8."""
    try:
        return bytes(map(_ALPHABET.__getitem__, token))
    except KeyError:
        return token.encode()


def is_fallback(token: str) -> bool:
    """Whether a SentencePiece token stands for one byte of what has no token of its own: `<0xNN>`."""
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def sentence_piece(token: str) -> bytes:
    """`<0xNN>` is one byte; U+2581 is a space."""
    if is_fallback(token):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def token_bytes(
    vocabulary: Mapping[str, int], added: Collection[str], spelling: Callable[[str], bytes]
) -> dict[int, bytes]:
    """The bytes of every id; an added token is its own text, and replaces the vocabulary's own of that id.

    Raises: ValueError for two strings of one kind with one id: which of them a reader of the file takes is chance.
    """
    texts: dict[int, str] = {}
    for text, token in sorted(vocabulary.items()):
        other = texts.get(token)
        if other is not None and (other in added) == (text in added):
            raise ValueError(f"id {token} is both {other!r} and {text!r}")
        if other is None or text in added:
            texts[token] = text
    return {token: text.encode() if text in added else spelling(text) for token, text in texts.items()}


def require_characters(text: str) -> None:
    """Raises: UsageError for a half of a character, which is how Python keeps a byte that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        at, character = error.start, text[error.start]
        byte = f"byte 0x{ord(character) - 0xDC00:02x}" if "\udc80" <= character <= "\udcff" else "half a character"
        raise UsageError(
            f"the text is not UTF-8: {byte} at {at} of {len(text)}", "type it again, or leave it out"
        ) from error


# Characters that no alphabet has, for marks that no content contains.
PRIVATE = range(0xF0000, 0xFFFFE)


class Spellings:
    """Finds the texts of some tokens in what a chat template is given.

    A mark cuts each spelling in two, so that only the template itself writes special tokens.
    """

    def __init__(self, tokens: Collection[str]) -> None:
        """A token of one character has no middle to be cut in, and is left alone."""
        rests = defaultdict[str, list[str]](list)
        for token in tokens:
            if len(token) > 1:
                rests[token[0]].append(re.escape(token[1:]))
        cuts = [f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()]
        self._cut = re.compile("|".join(cuts) or "(?!)")

    def parts(self, text: str) -> list[str]:
        """`text` cut there."""
        mark = next(unused_marks(text))
        return str(self.cut(text, mark)).split(mark)

    def cut(self, value: Any, mark: str) -> Any:
        """`value` with `mark` behind the first character of each spelling in its texts, at any depth."""
        if isinstance(value, str):
            return self._cut.sub(rf"\g<0>{mark}", value)
        if isinstance(value, Mapping):
            return {self.cut(key, mark): self.cut(inner, mark) for key, inner in value.items()}
        return [self.cut(inner, mark) for inner in value] if isinstance(value, list | tuple) else value


def unused_marks(*given: object) -> Iterator[str]:
    """Characters that are in no text of `given`."""
    text = json.dumps(given, ensure_ascii=False, skipkeys=True, default=str)
    return (mark for mark in map(chr, PRIVATE) if mark not in text)


@dataclass(frozen=True, slots=True)
class TokenTable:
    """`tokens[id]` is the bytes that id decodes to; `roles`: bos and eos ids; `special` ones are no words.

    `fallback` ones stand for a byte that another id may mean too.
    """

    tokens: Mapping[int, bytes]
    roles: Mapping[str, int | None]
    special: frozenset[int] = frozenset()
    fallback: frozenset[int] = frozenset()


# Of the target's tokens a translated draft must be able to say at least such a share, and should say the other.
LEAST_SHARE, GOOD_SHARE = 0.5, 0.9


@dataclass(frozen=True, slots=True)
class VocabVerdict:
    """`reason` is one line with both values; `first_difference` is the lowest id on which the two disagree.

    `share` of a sample text's tokens can be said by a draft whose tokenizer differs; None where it does not.
    """

    status: Literal["identical", "compatible", "translated", "incompatible"]
    reason: str
    first_difference: int | None = None
    share: float | None = None

    def of_share(self, share: float) -> VocabVerdict:
        """That on two that differ, between which ids are translated."""
        said = f"the draft can say {percent(share)} of a sample text's tokens"
        if share < LEAST_SHARE:
            reason = f"{self.reason}, and {said}, less than {percent(LEAST_SHARE)}"
            return replace(self, reason=reason, share=share)
        return replace(self, status="translated", reason=f"{said}; {self.reason}", share=share)

    @property
    def differs(self) -> bool:
        """Whether an id may be another word in the draft."""
        return self.status in ("translated", "incompatible")

    @property
    def warning(self) -> str:
        """What a translated draft loses; empty where that is little."""
        if self.status != "translated" or self.share is None or self.share >= GOOD_SHARE:
            return ""
        return f"the draft's tokenizer can say only {percent(self.share)} of the target's tokens; others are rejections"

    def refusal(self, target: str, draft: str) -> Refused:
        """The refusal of an incompatible pair of these names."""
        return Refused(
            f"tokenizers of {target} and {draft} differ: {self.reason}",
            f"a translated draft must say {percent(LEAST_SHARE)}: use one of the target's family, or --drafter none",
        )


def compare(target: TokenTable, draft: TokenTable) -> VocabVerdict:
    """Compatible if every word that both define has the same bytes.

    A draft is asked for words. Special tokens and roles that differ cost rejections, a token each, and no word.
    """
    both = target.tokens.keys() & draft.tokens.keys()
    differing = sorted(i for i in both if target.tokens[i] != draft.tokens[i])
    words = [i for i in differing if i not in target.special & draft.special]
    if words:
        i = words[0]
        reason = f"id {i} is {show(target.tokens[i])} in the target and {show(draft.tokens[i])} in the draft"
        return VocabVerdict("incompatible", reason, i)
    notes = [_extra("target", target, draft), _extra("draft", draft, target), _ends(target, draft)]
    if differing:
        i = differing[0]
        notes.append(
            f"{len(differing)} special tokens differ, first id {i}: {show(target.tokens[i])} and "
            f"{show(draft.tokens[i])}; each one drafted is rejected"
        )
    if not any(notes):
        return VocabVerdict("identical", f"all {len(both)} ids agree")
    agreeing = len(both) - len(differing)
    return VocabVerdict("compatible", "; ".join([f"the {agreeing} shared ids agree", *filter(None, notes)]))


def _ends(target: TokenTable, draft: TokenTable) -> str:
    """That an answer ends with another token here than there; empty where it does not, or where one has no end."""
    ours, theirs = target.roles.get("eos"), draft.roles.get("eos")
    if ours == theirs or ours is None or theirs is None:
        return ""
    return f"eos is id {ours} in the target and id {theirs} in the draft, which costs a rejection an answer"


def _extra(side: str, one: TokenTable, other: TokenTable) -> str:
    """How many tokens only `one` has, and the first of them; empty without any."""
    ids = one.tokens.keys() - other.tokens.keys()
    if not ids:
        return ""
    first = min(ids)
    return f"only the {side} has {len(ids)} more, from id {first} {show(one.tokens[first])}"


def show(token: bytes) -> str:
    """A readable token: 'text', or its bytes where they are no text."""
    try:
        return repr(token.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(token)
