"""The bytes that a vocabulary's entry stands for, in the two spellings that vocabularies have (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from specdec_cli.errors import UsageError


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


_ALPHABET = _byte_alphabet()


def byte_level(token: str) -> bytes:
    """Each character stands for a byte; a token with another character is its own UTF-8."""
    return bytes(_ALPHABET[c] for c in token) if all(c in _ALPHABET for c in token) else token.encode()


def sentence_piece(token: str) -> bytes:
    """`<0xNN>` is one byte; U+2581 is a space."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
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
