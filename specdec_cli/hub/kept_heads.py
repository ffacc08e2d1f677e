"""Heads taken out of a target's original repository by byte ranges, and kept whole or not at all.

No more bytes come than the headers of files and the tensors asked for. A range cannot be compared with the digest of
its file, which is of all bytes. So what is checked is that each range comes from the commit that was asked for, from a
file of the listed size, and is as long as the header says. A draft named `head:ORGANISATION/NAME` is the head kept of
that repository.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import constants

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.safetensors import MOST_HEADER_BYTES, Header, Stored, parse_header
from specdec_cli.hub.cache import HEAD_CONFIG, HEAD_SOURCE, HEAD_WEIGHTS, head_folder
from specdec_cli.hub.cached import RemoteFile, digest_of, remove_head
from specdec_cli.hub.client import as_user_error, library
from specdec_cli.hub.download import OnBytes, is_abandoned, silent
from specdec_cli.hub.snapshot import HubSnapshot

DAMAGED = "the repository's files are damaged, or a proxy alters what comes through it"
PIECE_BYTES = 4 << 20


def remote_headers(
    snapshot: HubSnapshot, files: Collection[RemoteFile] | None = None, folder: Path = Path()
) -> dict[Path, Header]:
    """The headers of `files`, or of all safetensors files of `snapshot`, by the places that these have in `folder`.

    Raises: NotAvailable for a header that is none.
    """
    files = [f for f in (snapshot.files if files is None else files) if f.path.endswith(".safetensors")]
    return {folder / file.path: _read_header(snapshot, file, folder / file.path) for file in files}


def _read_header(snapshot: HubSnapshot, file: RemoteFile, path: Path) -> Header:
    with as_user_error(snapshot.name):
        length = int.from_bytes(b"".join(_read_range(snapshot, file, 0, 8)), "little")
        if length > min(MOST_HEADER_BYTES, (file.size_bytes or MOST_HEADER_BYTES) - 8):
            raise NotAvailable(
                f"{file.path} of {snapshot.name} is not a safetensors file: it announces a header of {length} bytes",
                DAMAGED,
            )
        return parse_header(path, b"".join(_read_range(snapshot, file, 8, 8 + length)))


def _read_range(snapshot: HubSnapshot, file: RemoteFile, begin: int, end: int) -> Iterator[bytes]:
    """Bytes `begin` to `end` of the file, a piece a request; the library asks again where a connection breaks.

    Raises: NotAvailable for another range or another size; what the client raises.
    """
    url = huggingface_hub.hf_hub_url(snapshot.name, file.path, revision=snapshot.commit)
    headers = library().build_hf_headers() | {"accept-encoding": "identity"}
    for at in range(begin, end, PIECE_BYTES):
        last = min(at + PIECE_BYTES, end) - 1
        headers["range"] = f"bytes={at}-{last}"
        response = library().http_backoff("GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
        if response.status_code != 416:  # no such bytes
            library().hf_raise_for_status(response)
        sent = response.headers.get("content-range", "no range")[:80]
        sizes = {f"bytes {at}-{last}/{size}" for size in (file.size_bytes or sent.rpartition("/")[2], "*")}
        if sent not in sizes or len(response.content) != last + 1 - at:
            raise NotAvailable(
                f"bytes {at} to {last} of the {file.size_bytes} of {file.path} of {snapshot.name} were asked for, and "
                f"the server answers {response.status_code}: {sent}",
                "run the same command again; if it says so again, check HF_ENDPOINT and proxies",
            )
        yield response.content


def kept_commit(name: str) -> str | None:
    """The commit that the kept head is of, None if none is kept or its record is damaged."""
    commit = jsonfile.read_or_empty(head_folder(name) / HEAD_SOURCE).get("commit")
    return commit if isinstance(commit, str) else None


def read_config(snapshot: HubSnapshot) -> bytes:
    """config.json of a repository of which nothing else is wanted. Raises: NotAvailable if it has none."""
    file = next((file for file in snapshot.files if file.path == HEAD_CONFIG), None)
    if file is None:
        raise NotAvailable(f"{snapshot.name} has no {HEAD_CONFIG}", "name the repository of a model")
    with as_user_error(snapshot.name):
        return b"".join(_read_range(snapshot, file, 0, file.size_bytes))


def keep_head(
    snapshot: HubSnapshot, config: bytes, tensors: Iterable[Stored], layout: str, progress: OnBytes = silent
) -> Path:
    """Fetch these tensors of the files of `snapshot`, and keep them in place of what was kept of that repository.

    `layout` is `pt` for norms as original repositories store them, else `mlx`.
    Raises: NotAvailable, DoesNotFit; what was kept before then stays.
    """
    place = head_folder(snapshot.name)
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
    with as_user_error(snapshot.name, place.parent):
        for left in place.parent.glob(f".*.{8 * '[0-9a-f]'}"):  # by a killed pull
            if all(map(is_abandoned, [*left.glob("*"), left])):
                shutil.rmtree(left, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            _fetch_tensors(snapshot, tensors, draft / HEAD_WEIGHTS, layout, progress)
            (draft / HEAD_CONFIG).write_bytes(config)
            digests = {name: digest_of(draft / name, 64 * "0") for name in (HEAD_WEIGHTS, HEAD_CONFIG)}
            source = {"repository": snapshot.name, "commit": snapshot.commit, "sha256": digests}
            (draft / HEAD_SOURCE).write_text(json.dumps(source, indent=1), encoding="utf-8")
            remove_head(snapshot.name)
            draft.replace(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return place


def _fetch_tensors(
    snapshot: HubSnapshot, tensors: Iterable[Stored], place: Path, layout: str, progress: OnBytes
) -> None:
    """Write the tensors as one safetensors file, whose metadata names repository, commit and `layout`."""
    source = {"repository": snapshot.name, "commit": snapshot.commit, "format": layout}
    entries: dict[str, Any] = {"__metadata__": source}
    at, spans = 0, list[tuple[Path, int, int]]()
    for one in sorted(set(tensors), key=lambda stored: (stored.file, stored.begin)):
        offsets = [at, at := at + one.size_bytes]
        entries[one.name] = {"dtype": one.dtype, "shape": one.shape, "data_offsets": offsets}
        # Neighbours in a file come in one request.
        first = spans.pop()[1] if spans and spans[-1][::2] == (one.file, one.begin) else one.begin
        spans.append((one.file, first, one.begin + one.size_bytes))
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with place.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        files = {Path(file.path): file for file in snapshot.files}
        for path, begin, end in spans:
            for piece in _read_range(snapshot, files[path], begin, end):
                stream.write(piece)
                progress(place.name, stream.tell(), 8 + len(text) + at)
