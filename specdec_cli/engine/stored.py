"""Values with arrays in them as one safetensors file, written and read a piece a step.

The last array is the SHA-256 of everything before it: a file that ends early, was changed or is another program's is
never believed. Other tools can look inside, and mlx reads it back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx

from specdec_cli.core import jsonfile

PIECE_BYTES = 4 << 20
# Longer than the header of any cache: a length beyond it is no length.
MOST_HEADER_BYTES = 64 << 20
LENGTH_BYTES, DIGEST_BYTES = 8, 32
DIGEST, FACTS, VALUES, METADATA = "digest", "specdec", "values", "__metadata__"
FLOATS = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.bool_: "BOOL"}
WHOLE = {mx.uint8: "U8", mx.uint16: "U16", mx.uint32: "U32", mx.uint64: "U64"}
SIGNED = {mx.int8: "I8", mx.int16: "I16", mx.int32: "I32", mx.int64: "I64"}
DTYPES = FLOATS | WHOLE | SIGNED


class Unusable(ValueError):
    """What cannot be kept in a file, or a file that cannot be believed; the message says why in one line."""


def require_origin(origin: object, recent: int | None) -> None:
    """Raises: Unusable unless caches may begin at `origin`: only those that read `recent` tokens begin late."""
    if type(origin) is not int or origin < 0 or (origin and recent is None):
        raise Unusable(f"its caches begin at {origin!r}")


@dataclass(frozen=True, slots=True)
class Packed:
    """What goes into a file: its `head`, length included, and the arrays that follow."""

    head: bytes
    arrays: tuple[mx.array, ...]

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return len(self.head) + sum(array.nbytes for array in self.arrays) + DIGEST_BYTES


def pack(facts: Mapping[str, Any], values: Any) -> Packed:
    """`facts` (JSON) can be read alone; `values` are JSON with arrays among them; a tuple comes back as a list.

    What is one array in several places becomes one. Raises: Unusable.
    """
    arrays: dict[int, mx.array] = {}

    def name_of(value: Any) -> dict[str, int]:
        if not isinstance(value, mx.array) or value.dtype not in DTYPES:
            raise Unusable(f"a {type(value).__name__} cannot be kept")
        arrays[id(value)] = value
        return {"array": list(arrays).index(id(value))}

    header: dict[str, Any] = {METADATA: {FACTS: json.dumps(facts), VALUES: json.dumps(values, default=name_of)}}
    at = 0
    for name, array in enumerate(arrays.values()):
        header[str(name)] = _entry(DTYPES[array.dtype], list(array.shape), at, array.nbytes)
        at += array.nbytes
    header[DIGEST] = _entry("U8", [DIGEST_BYTES], at, DIGEST_BYTES)
    text = json.dumps(header).encode()
    return Packed(len(text).to_bytes(LENGTH_BYTES, "little") + text, tuple(arrays.values()))


def _entry(kind: str, shape: list[int], start: int, size: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, start + size]}


def write(file: BinaryIO, packed: Packed) -> Iterator[None]:
    """Write it, a piece a step: at most PIECE_BYTES, or what it takes to compute one array. Raises: OSError."""
    digest = hashlib.sha256(packed.head)
    file.write(packed.head)
    for array in packed.arrays:
        flat = mx.contiguous(array).reshape(-1)
        mx.eval(flat)
        buffer: Any = flat.view(mx.uint8) if flat.size else b""
        data = memoryview(buffer)
        yield
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            digest.update(piece)
            file.write(piece)
            yield
    file.write(digest.digest())


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of a file; whether it is whole is not looked at. Raises: Unusable, OSError."""
    return jsonfile.parse_object(_metadata(path, FACTS))


def read_values(path: Path) -> Generator[None, None, Any]:
    """The values of a file, a piece a step. Raises: Unusable where its digest does not fit, OSError."""
    digest, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        while (left := size - DIGEST_BYTES - file.tell()) > 0:
            digest.update(file.read(min(left, PIECE_BYTES)))
            yield
        if file.read() != digest.digest():
            raise Unusable("it was changed, or is not whole")
    text = _metadata(path, VALUES)
    arrays: Any = mx.load(str(path), format="safetensors")
    for array in arrays.values():
        mx.eval(array)
        yield
    return json.loads(text, object_hook=lambda found: arrays[str(found["array"])] if "array" in found else found)


def _metadata(path: Path, name: str) -> str:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(LENGTH_BYTES), "little")
        header = file.read(size) if 0 < size <= MOST_HEADER_BYTES else b""
    try:
        return str(jsonfile.parse_object(header)[METADATA][name])
    except (jsonfile.NotJson, KeyError, TypeError) as error:
        raise Unusable("its header is damaged, or another program's") from error
