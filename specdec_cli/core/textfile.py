"""Text from outside is UTF-8, or what its byte order mark says."""

from __future__ import annotations

import codecs
import shlex
from pathlib import Path

from specdec_cli.core.errors import UsageError
from specdec_cli.core.readfile import read_file

# Those of four bytes come first: one of them begins like one of two.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def in_wide_units(data: bytes) -> bool:
    """Whether its mark says that characters take two or four bytes."""
    return data.startswith(tuple(MARKS))


def as_utf8(data: bytes) -> bytes:
    """The same text in UTF-8 without a mark. Raises: UnicodeDecodeError for a mark that is wrong."""
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return data.decode(encoding).encode()
    return data.removeprefix(codecs.BOM_UTF8)


def decode_text(data: bytes, *, cut: bool = False) -> str:
    """The text in `data`, the last character of which may be `cut`. Raises: UnicodeDecodeError."""
    encoding = next((name for mark, name in MARKS.items() if data.startswith(mark)), "utf-8-sig")
    return codecs.getincrementaldecoder(encoding)().decode(data, final=not cut)


def text_of_file(path: Path, named: str, hint: str) -> str:
    """The text of a file, or of a pipe, that somebody `named`. Raises: UsageError for one that cannot be read."""
    try:
        data = read_file(path, piped=True)
    except OSError as error:
        raise UsageError(f"{named} cannot be read: {error.strerror}", hint) from error
    return text_of_bytes(data, named, shlex.quote(str(path)))


def text_of_bytes(data: bytes, named: str, file: str = "FILE") -> str:
    """Raises: UsageError for bytes that are not UTF-8, with how their `file` is converted."""
    try:
        return decode_text(data)
    except UnicodeDecodeError as error:
        place = f"byte 0x{error.object[error.start]:02x} at {error.start} of {len(data)}"
        hint = f"convert it first: iconv -f latin1 -t utf-8 {file}"
        raise UsageError(f"{named} is not UTF-8: {place}", hint) from error
