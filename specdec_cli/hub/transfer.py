"""One file from the Hub to its place. Law: a blob has the name of its listed digest, and only once its bytes have come
to that digest. So a crafted `ETag` or `X-Repo-Commit` names no path.

The connection is huggingface_hub's (retries, ranges, proxies, Xet); the place is ours. Bytes over plain HTTP are
digested while they arrive, a file from a Xet store when it is there.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.client import is_hub
from specdec_cli.hub.comparing import Arriving, digest_of, small_digest_of
from specdec_cli.hub.failures import explain, no_hub
from specdec_cli.hub.layout import blob_path, cache_folder, is_inside, repository, require_inside
from specdec_cli.hub.names import DISTRUST, SHA256, require_digest, shown
from specdec_cli.hub.progress import Progress, bar_class
from specdec_cli.hub.snapshot import RemoteFile, Snapshot

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

# (digest, size in bytes) of files that an earlier pull has compared.
Known = frozenset[tuple[str, int]]


def is_as_listed(name: str, file: RemoteFile, path: Path, known: Known) -> bool:
    """Is this file at `path`, in the cache, with the listed bytes? Weights in `known` are not read again.

    Raises: OSError.
    """
    if file.digest is None or not (is_inside(name, path) and file.is_whole(path)):
        return False
    if not file.is_weights:
        return small_digest_of(path, file.digest) == file.digest
    return (file.digest, path.stat().st_size) in known or digest_of(path, file.digest) == file.digest


def with_digest(snapshot: Snapshot, file: RemoteFile) -> RemoteFile:
    """The file with the digest its ETag gives, for a mirror whose listing gives none.

    Raises: NotAvailable where that is none either: such bytes cannot be compared with anything.
    """
    etag = _ask(snapshot, file).etag
    return file.with_digest(require_digest(snapshot.name, file.path, etag))


def bring(snapshot: Snapshot, file: RemoteFile, known: Known, progress: Progress) -> None:
    """The file into its snapshot: from its blob where another commit brought that, else from the Hub.

    Raises: NotAvailable for altered bytes, which are not kept; what huggingface_hub raises.
    """
    from huggingface_hub.file_download import are_symlinks_supported
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # exported, but not by its stub

    name, pointer = snapshot.name, snapshot.folder / file.path
    blob = blob_path(name, file.path, str(file.digest))
    lock = cache_folder() / ".locks" / repository(name).name / f"{blob.name}.lock"
    for folder in (blob.parent, pointer.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    require_inside(name, blob.parent)
    require_inside(name, pointer.parent)
    _tag_cache()
    place = blob if are_symlinks_supported(cache_folder()) else pointer
    with WeakFileLock(lock):  # huggingface_hub's own, so that two programs fetch a file once
        if not is_as_listed(name, file, place, known):
            _download(snapshot, file, place, progress)
        if place is blob and pointer.resolve() != blob.resolve():
            _link(blob, pointer)


def _download(snapshot: Snapshot, file: RemoteFile, place: Path, progress: Progress) -> None:
    """The file's bytes from the Hub to `place`, whole and compared or not at all."""
    metadata = _ask(snapshot, file)
    blobs = repository(snapshot.name) / "blobs"
    part = blobs / f"{file.digest}.{uuid.uuid4().hex[:8]}.incomplete"
    try:
        found = _receive(snapshot, file, metadata, part, cast(Any, bar_class(file, progress)))
        if found != file.digest:
            raise NotAvailable(
                f"{file.path} of {snapshot.name} came altered, and was not kept: "
                f"{found[:12]} instead of {str(file.digest)[:12]}",
                "the same command again; if it is altered again, a proxy or HF_ENDPOINT's mirror does that",
            )
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _receive(snapshot: Snapshot, file: RemoteFile, metadata: HfFileMetadata, part: Path, bar: Any) -> str:
    """All bytes into `part`; their digest."""
    from huggingface_hub.file_download import http_get, xet_get
    from huggingface_hub.utils._runtime import is_xet_available

    size_bytes = file.size_bytes or metadata.size
    xet = metadata.xet_file_data
    headers = _headers()
    # hf_xet asks for its keys itself, with the token: only at the Hub's own address.
    if xet and size_bytes and is_xet_available() and is_hub(xet.refresh_route) and SHA256.fullmatch(xet.file_hash):
        part.touch()
        xet_get(incomplete_path=part, xet_file_data=xet, headers=headers, expected_size=size_bytes, tqdm_class=bar)
        return digest_of(part, str(file.digest))
    told = f"{file.path} of {snapshot.name}"
    with part.open("w+b") as stream:
        arriving = Arriving(stream, str(file.digest), size_bytes or 0, told)
        http_get(metadata.location, cast(BinaryIO, arriving), headers=headers, expected_size=size_bytes, tqdm_class=bar)
        return arriving.hexdigest(part)


def _ask(snapshot: Snapshot, file: RemoteFile) -> HfFileMetadata:
    """Where the Hub says the bytes are. Its ETag and commit are looked at, and used for nothing else.

    Raises: NotAvailable for an ETag that is no digest, or another commit than the one that was asked for.
    """
    metadata = _metadata(snapshot, file)
    if metadata.commit_hash is None:
        raise no_hub(snapshot.name)
    if metadata.commit_hash != snapshot.commit:
        raise NotAvailable(
            f"the Hub sends {file.path} of {snapshot.name} from commit {shown(metadata.commit_hash)}, "
            f"and {snapshot.commit} was asked for",
            DISTRUST,
        )
    if metadata.etag is not None:
        require_digest(snapshot.name, file.path, metadata.etag)
    return metadata


def _metadata(snapshot: Snapshot, file: RemoteFile) -> HfFileMetadata:
    """The Hub's headers for the file; asked for again where the line broke, but not where they are no headers."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the client it really uses

    url = hf_hub_url(snapshot.name, file.path, revision=snapshot.commit)
    seconds = constants.HF_HUB_ETAG_TIMEOUT
    try:
        return get_hf_file_metadata(url, timeout=seconds, headers=_headers())
    except httpx.TransportError as error:
        if isinstance(error, httpx.RemoteProtocolError) and "header" in str(error):
            raise explain(error, f"{file.path} of {snapshot.name}") from error
    except HfHubHTTPError as error:
        if error.response.status_code < 429:  # only too many requests and a Hub in trouble may pass
            raise
    return get_hf_file_metadata(url, timeout=seconds, headers=_headers(), retry_on_errors=True)


def _headers() -> dict[str, str]:
    """With the token, which the client takes off wherever a request leaves the Hub, and counted as a download."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported, but not by its stub

    headers: dict[str, str] = build_hf_headers(headers={constants.X_HF_DOWNLOAD_COUNTER: "1"})
    return headers


def _link(blob: Path, pointer: Path) -> None:
    """Let the snapshot's file be the blob: in one step, also where something else is in its place."""
    draft = blob.with_name(f"{blob.name}.{uuid.uuid4().hex[:8]}.incomplete")
    try:
        draft.symlink_to(os.path.relpath(blob, pointer.parent))
        draft.replace(pointer)
    finally:
        draft.unlink(missing_ok=True)


def _tag_cache() -> None:
    """Tell backup programs that this folder can be fetched again, as huggingface_hub does."""
    tag = cache_folder() / "CACHEDIR.TAG"
    if not tag.exists():
        tag.write_text("Signature: 8a477f597d28d172789f06886806bc55\n# A cache of the Hugging Face Hub's files.\n")
