"""Text from outside is UTF-8, or what its byte order mark says."""

from __future__ import annotations

import codecs

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
