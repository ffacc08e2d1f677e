"""The files of a model's weights, by their headers: no tensor is read.

A safetensors file begins with 8 bytes of length and that many bytes of JSON: name -> dtype, shape and place of each
tensor.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.format import count
from specdec_cli.core.readfile import open_file

# The files that mlx-lm reads, and the one that may say which of them are the model's.
WEIGHTS = "model*.safetensors"
INDEX = "model.safetensors.index.json"
# The format's own limit (safetensors, MAX_HEADER_SIZE).
MOST_HEADER_BYTES = 100_000_000
POINTER = b"version https://git-lfs"
AGAIN = "delete the file and download it again"


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file, by the name it has there; `dtype` is safetensors' own word, such as `BF16`.

    `begin`: its first byte in the file.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    begin: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """Everything that a file says of itself: its tensors by name, its `metadata`, and how long it has to be."""

    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]
    file_bytes: int = 0


def refuse_pointer(path: Path) -> None:
    """Raises: NotAvailable for what git leaves of a large file where git-lfs did not fetch it."""
    with suppress(OSError), open_file(path) as file:  # whoever reads it says what is wrong with it
        if file.read(len(POINTER)) == POINTER:
            what = f"{path} is a git-lfs pointer of {path.stat().st_size} bytes, not the file itself"
            raise NotAvailable(what, f"git -C {shlex.quote(str(path.parent))} lfs pull")


def read_header(path: Path) -> Header:
    """The header of one file. Raises: NotAvailable if it is damaged, or not there any more."""
    try:
        refuse_pointer(path)
        with open_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= MOST_HEADER_BYTES else b""
    except OSError as error:
        raise NotAvailable(f"{path.name} cannot be read: {error.strerror}", AGAIN) from error
    return parse_header(path, text)


def parse_header(path: Path, text: bytes) -> Header:
    """The header `text` of the file `path`, which may be elsewhere. Raises: NotAvailable if it is damaged."""
    try:
        values = jsonfile.parse_object(text)
        metadata, tensors = values.pop("__metadata__", {}), {}
        for name, entry in values.items():
            begin, last = map(int, entry["data_offsets"])
            dtype, shape = str(entry["dtype"]), tuple(map(int, entry["shape"]))
            tensors[name] = Stored(path, name, dtype, shape, last - begin, 8 + len(text) + begin)
        return Header(tensors, metadata, 8 + len(text) + sum(stored.size_bytes for stored in tensors.values()))
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise NotAvailable(f"{path.name} is damaged: its header cannot be read", AGAIN) from error


OUTSIDE = re.compile(r"^(?:language_model\.|model\.)*")
LAYER = re.compile(r"layers\.(\d+)\.")
# Parts of a model that its text does not need.
BESIDE = re.compile(
    r"(?:^|\.)(?:mtp|nextn|eagle|medusa|visual|(?:embed_)?(?:vision|audio)|image|multi_modal|mm)(?:_\w+)?\."
    r"|rotary_emb\.inv_freq$"
)
# Models whose tower of pictures mlx-lm loads where the configuration has one.
KEEPS_TOWER = frozenset({"muse_spark"})


@dataclass(frozen=True, slots=True)
class Weights:
    """The `files` of a model's weights; or how many it `lacks`, and the names of these."""

    files: tuple[Path, ...]
    lacks: str = ""
    missing: tuple[str, ...] = ()


def find_weights(folder: Path, config: Mapping[str, Any], shards: object) -> Weights:
    """Of the files that mlx-lm reads, those that the index names; all of them where it is another form's.

    `shards` is what the index holds under weight_map, None without one. A file that it names and that is not there is
    missed only for tensors that the language model needs, and that no other file holds. Whoever loads these is told
    what they lack. A file that a whole index does not name is another's.
    """
    found = tuple(path for path in sorted(folder.glob(WEIGHTS)) if path.is_file())
    # What is called otherwise, such as a head's own file, mlx-lm does not read.
    placed = {t: str(f) for t, f in shards.items() if fnmatchcase(str(f), WEIGHTS)} if isinstance(shards, dict) else {}
    named = {*placed.values()}
    missing = named - {path.name for path in found}
    own = tuple(path for path in found if path.name in named)
    if own and missing:
        needed = {_bare(t) for t, f in placed.items() if f in missing and not is_beside(t, config)}
        own = next((files for files in (own, found) if needed <= _held(files)), ())
    if missing and not own and (len(missing) < len(named) or not found):
        return Weights((), f"{len(missing)} of {count(len(named), 'weight file')}", tuple(sorted(missing)))
    return Weights(own or found)


def _held(files: Collection[Path]) -> set[str]:
    """The tensors in these files; a damaged one has none."""
    held = set[str]()
    for path in files:
        with suppress(NotAvailable):
            held.update(map(_bare, read_header(path).tensors))
    return held


def _bare(tensor: str) -> str:
    """Its name without what conversions put before it or leave out."""
    return OUTSIDE.sub("", tensor)


def is_beside(tensor: str, config: Mapping[str, Any]) -> bool:
    """Whether it belongs to a head or a tower that mlx-lm drops, not to the language model that `config` describes."""
    text = config.get("text_config")
    layers = (text if isinstance(text, Mapping) else config).get("num_hidden_layers")
    if "vision_" in tensor and config.get("vision_config") and config.get("model_type") in KEEPS_TOWER:
        return False
    layer = LAYER.match(_bare(tensor))
    return bool(BESIDE.search(tensor) or (layer and isinstance(layers, int) and 0 < layers <= int(layer[1])))
