"""Headers of safetensors files (pure). Law: no weight is read.

The format: 8 bytes of length, that many bytes of JSON: name -> dtype, shape and place of each tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Header:
    """Everything that a file says of itself: its tensors by name, and its `metadata`."""

    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]


def read_header(path: Path) -> Header:
    """The header of one file. Raises: NotAvailable if it is damaged."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER_BYTES:
                raise NotJson(f"a header of {length} bytes")
            values = jsonfile.parse_object(file.read(length))
        metadata = values.pop("__metadata__", {})
        tensors = {
            name: Stored(path, name, str(entry["dtype"]), tuple(map(int, entry["shape"])))
            for name, entry in values.items()
        }
        return Header(tensors, metadata)
    except (ValueError, OverflowError, MemoryError, KeyError, TypeError, AttributeError) as error:
        raise NotAvailable(
            f"{path.name} is damaged ({path.stat().st_size} bytes): its header cannot be read",
            "delete the file and download it again",
        ) from error
