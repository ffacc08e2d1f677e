"""Headers of safetensors files (pure). Law: no weight is read.

The format: 8 bytes of length, that many bytes of JSON: name -> dtype, shape and place of each tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_cli import jsonfile
from specdec_cli.errors import NotAvailable
from specdec_cli.jsonfile import NotJson

# The format's own limit (safetensors, MAX_HEADER_SIZE).
MOST_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file, by the name it has there; `dtype` is safetensors' own word, such as `BF16`."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Everything that a file says of itself: its tensors by name, its `metadata`, and how long it has to be."""

    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]
    file_bytes: int = 0


def read_header(path: Path) -> Header:
    """The header of one file. Raises: NotAvailable if it is damaged, or not there any more."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER_BYTES:
                raise NotJson(f"a header of {length} bytes")
            values = jsonfile.parse_object(file.read(length))
        metadata = values.pop("__metadata__", {})
        end = max((int(entry["data_offsets"][1]) for entry in values.values()), default=0)
        return Header({name: _stored(path, name, entry) for name, entry in values.items()}, metadata, 8 + length + end)
    except OSError as error:
        raise NotAvailable(
            f"{path.name} cannot be read: {error.strerror}", "delete the file and download it again"
        ) from error
    except (ValueError, OverflowError, MemoryError, KeyError, TypeError, AttributeError) as error:
        raise NotAvailable(
            f"{path.name} is damaged ({path.stat().st_size} bytes): its header cannot be read",
            "delete the file and download it again",
        ) from error


def _stored(path: Path, name: str, entry: Mapping[str, Any]) -> Stored:
    begin, end = map(int, entry["data_offsets"])
    return Stored(path, name, str(entry["dtype"]), tuple(map(int, entry["shape"])), end - begin)
