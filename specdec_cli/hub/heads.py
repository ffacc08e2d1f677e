"""Heads taken out of a target's original repository by byte ranges, and kept whole or not at all.

No more bytes come than the headers of files and the tensors asked for. A range cannot be compared with the digest of
its file, which is of all bytes. So what is checked is that each range comes from the commit that was asked for, from a
file of the listed size, and is as long as the header says. A draft named `head:ORGANISATION/NAME` is the head kept of
that repository.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_cli import jsonfile
from specdec_cli.errors import NotAvailable
from specdec_cli.hub.cache import HEAD_CONFIG, HEAD_SOURCE, HEAD_WEIGHTS, head_folder
from specdec_cli.hub.client import as_user_error, library
from specdec_cli.hub.download import Progress, silent
from specdec_cli.hub.snapshot import RemoteFile, Snapshot

# What safetensors itself allows for a header (docs of the format, "hard limit").
MAX_HEADER_BYTES = 100_000_000
BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}
BITS |= {"I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8}
DAMAGED = "the repository's files are damaged, or a proxy alters what comes through it"
PIECE_BYTES = 32 << 20
TRIES = 4
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RemoteTensor:
    """A tensor inside a file on the Hub; bytes `begin` to `end` (exclusive) of that file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: RemoteFile
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin


def remote_tensors(snapshot: Snapshot, wanted: Callable[[str], bool]) -> list[RemoteTensor]:
    """The tensors of `snapshot` whose names are `wanted`, from the headers of all its safetensors files.

    Raises: NotAvailable for a header that is none, and for what goes wrong on the way.
    """
    files = [file for file in snapshot.files if file.path.endswith(".safetensors")]
    found = [tensor for file in files for tensor in _tensors_of(snapshot, file) if wanted(tensor.name)]
    return sorted(found, key=lambda tensor: (tensor.file.path, tensor.begin))


def fetch_tensors(
    snapshot: Snapshot, tensors: Sequence[RemoteTensor], place: Path, progress: Progress = silent, layout: str = "pt"
) -> Path:
    """Write `tensors` as one safetensors file at `place`; its metadata names repository, commit and `layout`.

    Raises: NotAvailable, DoesNotFit for a full disk; nothing is left of a file that did not come whole.
    """
    ordered = sorted(tensors, key=lambda tensor: (tensor.file.path, tensor.begin))
    header = _header(snapshot, ordered, layout)
    total_bytes = len(header) + sum(tensor.size_bytes for tensor in ordered)
    part = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.incomplete")
    with as_user_error(snapshot.name):
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as stream:
                stream.write(header)
                for file, begin, end in _spans(ordered):
                    for piece in _read_range(snapshot, file, begin, end):
                        stream.write(piece)
                        progress(place.name, stream.tell(), total_bytes)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    return place


def read_whole(snapshot: Snapshot, file: RemoteFile) -> bytes:
    """The bytes of a small file, past the cache. Raises: NotAvailable."""
    with as_user_error(snapshot.name):
        return b"".join(_read_range(snapshot, file, 0, file.size_bytes))


def _spans(ordered: Sequence[RemoteTensor]) -> list[tuple[RemoteFile, int, int]]:
    """(file, begin, end): neighbours in a file come in one request."""
    spans: list[tuple[RemoteFile, int, int]] = []
    for tensor in ordered:
        begin = spans.pop()[1] if spans and spans[-1][::2] == (tensor.file, tensor.begin) else tensor.begin
        spans.append((tensor.file, begin, tensor.end))
    return spans


def _header(snapshot: Snapshot, ordered: Sequence[RemoteTensor], layout: str) -> bytes:
    source = {"repository": snapshot.name, "commit": snapshot.commit, "format": layout}
    entries: dict[str, Any] = {"__metadata__": source}
    at = 0
    for tensor in ordered:
        offsets = [at, at := at + tensor.size_bytes]
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _tensors_of(snapshot: Snapshot, file: RemoteFile) -> list[RemoteTensor]:
    """Raises: NotAvailable for a header that no safetensors file has."""
    with as_user_error(snapshot.name):
        length = int.from_bytes(b"".join(_read_range(snapshot, file, 0, 8)), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, (file.size_bytes or MAX_HEADER_BYTES) - 8):
            raise NotAvailable(
                f"{file.path} of {snapshot.name} is no safetensors file: it announces a header of {length} bytes",
                DAMAGED,
            )
        text = b"".join(_read_range(snapshot, file, 8, 8 + length))
    try:
        entries = jsonfile.parse_object(text)
        return [_tensor(name, entry, file, 8 + length) for name, entry in entries.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError) as error:
        raise NotAvailable(f"{file.path} of {snapshot.name} has a header that cannot be read", DAMAGED) from error


def _tensor(name: str, entry: Any, file: RemoteFile, data_begin: int) -> RemoteTensor:
    """Raises: ValueError, TypeError, KeyError for an entry that does not add up."""
    shape = tuple(int(size) for size in entry["shape"])
    begin, end = (data_begin + int(offset) for offset in entry["data_offsets"])
    bits = BITS.get(entry["dtype"])
    fits = data_begin <= begin <= end <= (file.size_bytes or end) and min((*shape, 0)) == 0
    if not fits or (bits is not None and 8 * (end - begin) != bits * math.prod(shape)):
        raise ValueError(f"{name}: {entry}")
    return RemoteTensor(name, str(entry["dtype"]), shape, file, begin, end)


def _read_range(snapshot: Snapshot, file: RemoteFile, begin: int, end: int) -> Iterator[bytes]:
    """Bytes `begin` to `end` of the file, a piece a request; the library asks again where a connection breaks.

    Raises: NotAvailable for another range or another size; what the client raises.
    """
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(snapshot.name, file.path, revision=snapshot.commit)
    headers = library().build_hf_headers() | {"accept-encoding": "identity"}
    for at in range(begin, end, PIECE_BYTES):
        last = min(at + PIECE_BYTES, end) - 1
        headers["range"] = f"bytes={at}-{last}"
        response = library().http_backoff("GET", url, headers=headers, timeout=TIMEOUT_SECONDS, max_retries=TRIES)
        if response.status_code != 416:  # no such bytes
            library().hf_raise_for_status(response)
        sent = response.headers.get("content-range", "no range")[:80]
        sizes = {f"bytes {at}-{last}/{size}" for size in (file.size_bytes or sent.rpartition("/")[2], "*")}
        if sent not in sizes or len(response.content) != last + 1 - at:
            raise NotAvailable(
                f"bytes {at} to {last} of the {file.size_bytes} of {file.path} of {snapshot.name} were asked for, and "
                f"the server answers {response.status_code}: {sent}",
                "the same command again; if it says so again, check HF_ENDPOINT and proxies",
            )
        yield response.content


def kept_commit(name: str) -> str | None:
    """The commit that the kept head is of, None if none is kept or its record is damaged."""
    commit = jsonfile.read_or_empty(head_folder(name) / HEAD_SOURCE).get("commit")
    return commit if isinstance(commit, str) else None


def read_config(snapshot: Snapshot) -> bytes:
    """config.json of a repository of which nothing else is wanted. Raises: NotAvailable if it has none."""
    file = next((file for file in snapshot.files if file.path == HEAD_CONFIG), None)
    if file is None:
        raise NotAvailable(f"{snapshot.name} has no {HEAD_CONFIG}", "name the repository of a model")
    return read_whole(snapshot, file)


def keep_head(
    snapshot: Snapshot, config: bytes, tensors: Sequence[RemoteTensor], layout: str, progress: Progress = silent
) -> Path:
    """Fetch `tensors` of `snapshot`, and keep them in place of what was kept of that repository.

    `layout` is `pt` for norms as original repositories store them, else `mlx`.
    Raises: NotAvailable, DoesNotFit; what was kept before then stays.
    """
    place = head_folder(snapshot.name)
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
    with as_user_error(snapshot.name):
        try:
            fetch_tensors(snapshot, tensors, draft / HEAD_WEIGHTS, progress, layout)
            (draft / HEAD_CONFIG).write_bytes(config)
            digests = {name: _sha256(draft / name) for name in (HEAD_WEIGHTS, HEAD_CONFIG)}
            source = {"repository": snapshot.name, "commit": snapshot.commit, "sha256": digests}
            (draft / HEAD_SOURCE).write_text(json.dumps(source, indent=1), encoding="utf-8")
            remove_head(snapshot.name)
            draft.replace(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return place


def head_bytes(name: str) -> int:
    """Bytes of the kept head, 0 if none is."""
    folder = head_folder(name)
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def remove_head(name: str) -> int:
    """Remove the kept head; returns the bytes freed. Raises: NotAvailable where it cannot be removed."""
    folder, freed = head_folder(name), head_bytes(name)
    with as_user_error(name):
        if folder.is_dir():
            shutil.rmtree(folder)
    return freed


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
