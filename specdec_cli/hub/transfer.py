"""Downloads one file to its place. Law: a blob is named by its listed digest, and only after its bytes have that
digest. A crafted `ETag` or `X-Repo-Commit` therefore names no path.

huggingface_hub makes the connection (retries, ranges, proxies, Xet); specdec chooses the place. Bytes over plain HTTP
are digested as they arrive, a file from a Xet store after it arrived.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.client import is_hub, library
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
    """Whether this file is at `path`, inside the cache, with the listed bytes. Weights in `known` are not read again.

    Raises: OSError.
    """
    if file.digest is None or not (is_inside(name, path) and file.is_whole(path)):
        return False
    if not file.is_weights:
        return small_digest_of(path, file.digest) == file.digest
    return (file.digest, path.stat().st_size) in known or digest_of(path, file.digest) == file.digest


def with_digest(snapshot: Snapshot, file: RemoteFile) -> RemoteFile:
    """The file with the digest of its ETag, for a mirror whose listing gives none.

    Raises: NotAvailable where the ETag is no digest: there is nothing to compare the bytes with.
    """
    etag = _ask(snapshot, file).etag
    return file.with_digest(require_digest(snapshot.name, file.path, etag))


def bring(snapshot: Snapshot, file: RemoteFile, known: Known, progress: Progress) -> None:
    """Put the file into its snapshot: from its blob if another commit brought it, else from the Hub.

    Raises: NotAvailable for altered bytes, which are not kept; what huggingface_hub raises.
    """
    from huggingface_hub.file_download import are_symlinks_supported

    name, pointer = snapshot.name, snapshot.folder / file.path
    blob = blob_path(name, file.path, str(file.digest))
    lock = cache_folder() / ".locks" / repository(name).name / f"{blob.name}.lock"
    for folder in (blob.parent, pointer.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    require_inside(name, blob.parent)
    require_inside(name, pointer.parent)
    _tag_cache()
    place = blob if are_symlinks_supported(cache_folder()) else pointer
    with library().WeakFileLock(lock):  # the lock of huggingface_hub: two programs fetch a file once
        if not is_as_listed(name, file, place, known):
            _download(snapshot, file, place, progress)
        if place is blob and pointer.resolve() != blob.resolve():
            _link(blob, pointer)


def _download(snapshot: Snapshot, file: RemoteFile, place: Path, progress: Progress) -> None:
    """Fetch the file's bytes to `place`, complete and compared, or not at all."""
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
    """Write all bytes to `part`; returns their digest."""
    from huggingface_hub.file_download import http_get, xet_get
    from huggingface_hub.utils._runtime import is_xet_available

    size_bytes = file.size_bytes or metadata.size
    xet = metadata.xet_file_data
    headers = _headers()
    # hf_xet asks for its keys itself and sends the token, so the address must be the Hub's own.
    if xet and size_bytes and is_xet_available() and is_hub(xet.refresh_route) and SHA256.fullmatch(xet.file_hash):
        part.touch()
        xet_get(incomplete_path=part, xet_file_data=xet, headers=headers, expected_size=size_bytes, tqdm_class=bar)
        return digest_of(part, str(file.digest))
    label = f"{file.path} of {snapshot.name}"
    with part.open("w+b") as stream:
        arriving = Arriving(stream, str(file.digest), size_bytes or 0, label)
        http_get(metadata.location, cast(BinaryIO, arriving), headers=headers, expected_size=size_bytes, tqdm_class=bar)
        return arriving.hexdigest(part)


def located(snapshot: Snapshot, file: RemoteFile) -> tuple[str, dict[str, str]]:
    """The address of the file's bytes at this commit, and the headers to ask for them with.

    Raises: NotAvailable for another commit; what huggingface_hub raises.
    """
    return _ask(snapshot, file).location, _headers()


def _ask(snapshot: Snapshot, file: RemoteFile) -> HfFileMetadata:
    """The Hub's headers for the file: where its bytes are. The ETag and the commit are checked, never used as a path.

    Raises: NotAvailable for an ETag that is no digest, or a commit other than the one asked for.
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
    """Ask for the file's headers; ask again after a broken connection, but not after invalid headers."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    httpx = library().httpx

    url = hf_hub_url(snapshot.name, file.path, revision=snapshot.commit)
    seconds = constants.HF_HUB_ETAG_TIMEOUT
    try:
        return get_hf_file_metadata(url, timeout=seconds, headers=_headers())
    except httpx.TransportError as error:
        if isinstance(error, httpx.RemoteProtocolError) and "header" in str(error):
            raise explain(error, f"{file.path} of {snapshot.name}") from error
    except HfHubHTTPError as error:
        if error.response.status_code < 429:  # only 429 and server errors are worth another try
            raise
    return get_hf_file_metadata(url, timeout=seconds, headers=_headers(), retry_on_errors=True)


def _headers() -> dict[str, str]:
    """Headers with the token, counted as a download. The client removes the token on requests to other hosts."""
    from huggingface_hub import constants

    headers: dict[str, str] = library().build_hf_headers(headers={constants.X_HF_DOWNLOAD_COUNTER: "1"})
    return headers


def _link(blob: Path, pointer: Path) -> None:
    """Link the snapshot's file to the blob in one step, replacing what is in its place."""
    draft = blob.with_name(f"{blob.name}.{uuid.uuid4().hex[:8]}.incomplete")
    try:
        draft.symlink_to(os.path.relpath(blob, pointer.parent))
        draft.replace(pointer)
    finally:
        draft.unlink(missing_ok=True)


def _tag_cache() -> None:
    """Mark the folder as a cache for backup programs, as huggingface_hub does."""
    tag = cache_folder() / "CACHEDIR.TAG"
    if not tag.exists():
        tag.write_text("Signature: 8a477f597d28d172789f06886806bc55\n# A cache of the Hugging Face Hub's files.\n")
