"""The bytes that a vocabulary's entry stands for, in the two spellings that vocabularies have (pure)."""

from __future__ import annotations

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


def require_characters(text: str) -> None:
    """Raises: UsageError for a half of a character, which is how Python keeps a byte that is not UTF-8."""
    for at, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            byte = f"byte 0x{ord(character) - 0xDC00:02x}" if "\udc80" <= character <= "\udcff" else "half a character"
            raise UsageError(f"the text is not UTF-8: {byte} at {at} of {len(text)}", "type it again, or leave it out")
