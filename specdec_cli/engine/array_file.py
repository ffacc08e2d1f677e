"""Arrays and a few facts in one file. Law: what is read is what was written, or nothing: damage is an error.

The format is safetensors', so other tools can look inside. The last array, CHECKS, holds the crc32 of the header and of
each array before it: a file that ends early, was changed or is another program's is never believed.
"""

from __future__ import annotations

import array as numbers
import json
import zlib
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx

from specdec_cli import jsonfile

PIECE_BYTES = 4 << 20
# Longer than the header of any cache: a length beyond it is no length.
MOST_HEADER_BYTES = 64 << 20
LENGTH_BYTES = 8
CHECK_BYTES = 4
CHECKS = "checks"
FACTS = "specdec"
METADATA = "__metadata__"
DTYPES = {
    "F32": mx.float32,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "U8": mx.uint8,
    "I8": mx.int8,
    "U16": mx.uint16,
    "I16": mx.int16,
    "U32": mx.uint32,
    "I32": mx.int32,
    "U64": mx.uint64,
    "I64": mx.int64,
    "BOOL": mx.bool_,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Unusable(ValueError):
    """What cannot be kept in a file, or a file that cannot be believed; the message says why in one line."""


def file_bytes(facts: Mapping[str, Any], arrays: Mapping[str, mx.array]) -> int:
    """The size of the file that `write` makes. Raises: Unusable."""
    sizes = sum(array.nbytes for array in arrays.values()) + CHECK_BYTES * (1 + len(arrays))
    return LENGTH_BYTES + len(_header(facts, arrays)) + sizes


def write(file: BinaryIO, facts: Mapping[str, Any], arrays: Mapping[str, mx.array]) -> Iterator[None]:
    """Write both, a piece a step: at most PIECE_BYTES, or what it takes to compute one array.

    `facts` are JSON values. Raises: Unusable for arrays that no file can hold, OSError.
    """
    header = _header(facts, arrays)
    head = len(header).to_bytes(LENGTH_BYTES, "little") + header
    checks = numbers.array("I", [zlib.crc32(head)])
    file.write(head)
    for name, values in arrays.items():
        check, data = 0, _bytes_of(name, values)
        yield
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            check = zlib.crc32(piece, check)
            file.write(piece)
            yield
        checks.append(check)
    file.write(checks.tobytes())


class ArrayFile:
    """A file that `write` made: its header is checked now, each array when it is read."""

    def __init__(self, path: Path) -> None:
        """Raises: Unusable, OSError."""
        self.path = path
        with path.open("rb") as file:
            self.nbytes = file.seek(0, 2)
            file.seek(0)
            size = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if not 0 < size <= min(MOST_HEADER_BYTES, self.nbytes - LENGTH_BYTES):
                raise Unusable("it does not begin as it should")
            header = file.read(size)
        self._start = LENGTH_BYTES + size
        values = _parsed(header)
        self._places = self._checked_places(values)
        self._checks = self._read_checks(zlib.crc32(size.to_bytes(LENGTH_BYTES, "little") + header))
        self.facts = _facts_of(values)
        self._ahead: dict[str, mx.array] = {}

    def ids(self, name: str) -> numbers.array[int]:
        """The ids [N] in the array `name`. Raises: Unusable, OSError."""
        if name not in self._places or self._places[name][0] != "I32":
            raise Unusable(f"it has no ids {name}")
        found = numbers.array("i")
        found.frombytes(self._data(name))
        return found

    def ahead(self) -> Iterator[None]:
        """Read what `array` will be asked for, an array a step; each is given once. Raises: Unusable, OSError."""
        self.forget()
        for name in self._places:
            if name.isdigit():  # the others are ids
                self._ahead[name] = self.array(name)
                yield

    def forget(self) -> None:
        """Nothing is read ahead any more."""
        self._ahead = {}

    def array(self, name: str) -> mx.array:
        """Raises: Unusable, OSError."""
        if name in self._ahead:
            return self._ahead.pop(name)
        if name not in self._places:
            raise Unusable(f"it has no array {name}")
        kind, shape, *_ = self._places[name]
        data: Any = memoryview(self._data(name))  # a buffer, which mlx reads and does not name among its types
        if not data:
            return mx.zeros(shape, DTYPES[kind])
        return mx.array(data, dtype=mx.uint8).view(DTYPES[kind]).reshape(shape)

    def _data(self, name: str) -> bytes:
        _, _, start, end, check = self._places[name]
        with self.path.open("rb") as file:
            file.seek(self._start + start)
            data = file.read(end - start)
        if len(data) != end - start or zlib.crc32(data) != self._checks[check]:
            raise Unusable(f"its array {name} was changed, or is not whole")
        return data

    def _checked_places(self, header: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...], int, int, int]]:
        """Of each array: its type, shape, first and last byte and number; they fill the file. Raises: Unusable."""
        found, at = {}, 0
        try:
            for number, (name, entry) in enumerate(item for item in header.items() if item[0] != METADATA):
                kind, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
                if (start, end) != (at, at + prod(shape) * DTYPES[kind].size) or min(shape, default=0) < 0:
                    raise Unusable(f"its array {name} has no place")
                found[name], at = (kind, shape, start, end, number + 1), end
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unusable("its header is of another kind") from error
        if self.nbytes != self._start + at or next(reversed(found), None) != CHECKS:
            raise Unusable(f"it has {self.nbytes} bytes, and its header says {self._start + at}")
        return found

    def _read_checks(self, header: int) -> numbers.array[int]:
        _, _, start, end, _ = self._places[CHECKS]
        checks = numbers.array("I")
        with self.path.open("rb") as file:
            file.seek(self._start + start)
            data = file.read(end - start)
        if len(data) != CHECK_BYTES * len(self._places):
            raise Unusable("its checks are missing")
        checks.frombytes(data)
        if checks[0] != header:
            raise Unusable("its header was changed")
        return checks


def _bytes_of(name: str, values: mx.array) -> memoryview:
    """Computed. Raises: Unusable for what is no number."""
    if mx.issubdtype(values.dtype, mx.floating) and values.size and mx.any(mx.isnan(values)).item():
        raise Unusable(f"the array {name} holds what is no number")
    flat = mx.contiguous(values).reshape(-1)
    mx.eval(flat)
    data: Any = flat.view(mx.uint8) if flat.size else b""
    return memoryview(data)


def _header(facts: Mapping[str, Any], arrays: Mapping[str, mx.array]) -> bytes:
    entries: dict[str, Any] = {METADATA: {FACTS: json.dumps(facts)}}
    at = 0
    for name, values in arrays.items():
        if values.dtype not in NAMES:
            raise Unusable(f"no file holds numbers of type {values.dtype}")
        entries[name] = _entry(NAMES[values.dtype], list(values.shape), at, values.nbytes)
        at += values.nbytes
    entries[CHECKS] = _entry("U32", [1 + len(arrays)], at, CHECK_BYTES * (1 + len(arrays)))
    return json.dumps(entries).encode()


def _entry(kind: str, shape: list[int], start: int, size: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, start + size]}


def _parsed(data: bytes | str) -> dict[str, Any]:
    try:
        return jsonfile.parse_object(data)
    except jsonfile.NotJson as error:
        raise Unusable(f"its header is damaged: {error}") from error


def _facts_of(header: Mapping[str, Any]) -> dict[str, Any]:
    metadata = header.get(METADATA)
    if not isinstance(metadata, dict) or not isinstance(metadata.get(FACTS), str):
        raise Unusable("it is another program's")
    return _parsed(metadata[FACTS])
