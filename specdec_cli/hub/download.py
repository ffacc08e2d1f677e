"""Downloads a model into the shared cache with huggingface_hub, and compares what came with the Hub's listing.

Bytes are compared before they may speak, and altered ones are removed. A branch moves to its new commit only
after the whole model is here, so an interrupted pull leaves the old model usable.

Files that are already here are compared once as well, because another tool may have brought them. Weights are fetched
one at a time, so an interruption costs at most one file. The comparison finds what a mirror, a proxy, a connection or
a disk altered, and no Hub that lies both in its listing and in its bytes; of a commit that was pulled before, the
record is believed (`record`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from specdec_cli.errors import DoesNotFit, NotAvailable
from specdec_cli.format import size
from specdec_cli.hub import cached as record
from specdec_cli.hub.cache import (
    blob_path,
    cache_folder,
    is_inside,
    replace_text,
    repository,
    require_digest,
    require_inside,
)
from specdec_cli.hub.cached import Problem, digest_of
from specdec_cli.hub.client import as_user_error, refuse_etags
from specdec_cli.hub.snapshot import RemoteFile, Snapshot

# The library drops a connection after about a minute without data, so a part this old belongs to no running download.
ABANDONED_SECONDS = 600.0
# (digest, size in bytes) of files that an earlier pull has compared.
Known = frozenset[tuple[str, int]]


class Progress(Protocol):
    """Called with a file's bytes done, which never decrease, and total bytes. The last call has both equal.

    A call with as many bytes as before says that data came which is not in the file yet.
    """

    def __call__(self, path: str, done_bytes: int, total_bytes: int, /) -> None: ...


def silent(path: str, done_bytes: int, total_bytes: int, /) -> None:
    """A Progress that shows nothing."""


def fetch_small(snapshot: Snapshot) -> Path:
    """Fetch everything except the weights, so the verdict comes before gigabytes; returns the snapshot's folder.

    Raises: NotAvailable, DoesNotFit.
    """
    check_space([replace(snapshot, files=tuple(file for file in snapshot.files if not file.is_weights))])
    _fetch_small(snapshot)
    return snapshot.folder


def fetch(snapshot: Snapshot, progress: Progress = silent) -> Path:
    """Fetch the whole model; returns the snapshot's folder. Files that are here and compared cost no call.

    Raises: NotAvailable, also for altered bytes; DoesNotFit before the first byte when the disk is too small.
    """
    if snapshot.from_cache:
        return snapshot.folder
    name, commit = snapshot.name, snapshot.commit
    check_space([snapshot])
    with as_user_error(name):
        _sweep(name, time.time())
        known = record.compared_digests(name)
    files = _fetch_small(snapshot)
    for file in files:
        progress(file.path, file.size_bytes, file.size_bytes)
    with as_user_error(name):
        if any(file.is_weights and not file.cached for file in snapshot.files):
            record.write(name, commit, [])
    files += [_fetch_file(snapshot, file, known, progress) for file in snapshot.files if file.is_weights]
    with as_user_error(name):
        sizes = [(snapshot.folder / file.path).stat().st_size for file in files]
        compared = zip(files, sizes, strict=True)
        record.write(name, commit, [record.Entry(file.path, bytes_, str(file.digest)) for file, bytes_ in compared])
        if snapshot.revision != commit:
            replace_text(name, repository(name) / "refs" / snapshot.revision, commit)
    return snapshot.folder


def check_space(snapshots: Iterable[Snapshot]) -> None:
    """Check that the missing files of these snapshots fit on the disk. Raises: DoesNotFit, with both numbers."""
    needed = {(snapshot.name, snapshot.commit): snapshot.download_bytes for snapshot in snapshots}
    free = free_bytes()
    if sum(needed.values()) > free:
        names = " and ".join(name for name, _ in needed)
        verb = "needs" if len(needed) == 1 else "need"
        raise DoesNotFit(
            f"{names} {verb} {size(sum(needed.values()))}, and the disk of {cache_folder()} has {size(free)} free",
            "free some space (specdec rm NAME), or set HF_HOME to a folder on a bigger disk",
        )


def free_bytes() -> int:
    """Free space on the disk of the cache, which need not exist yet."""
    folder = cache_folder().expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def uncompared_bytes(snapshots: Iterable[Snapshot]) -> int:
    """Bytes of weights in the cache that no pull has compared; the next pull reads them all."""
    total = 0
    for snapshot in snapshots:
        known = record.compared_digests(snapshot.name)
        here = [file for file in snapshot.files if file.cached and file.is_weights and not snapshot.from_cache]
        total += sum(file.size_bytes for file in here if (file.digest, file.size_bytes) not in known)
    return total


def verify(snapshot: Snapshot) -> list[Problem]:
    """Read every file here, weights included, and compare its digest; one without a known digest is skipped.

    Raises: NotAvailable where a file cannot be read or is outside the cache.
    """
    problems = []
    for file in snapshot.files:
        path = snapshot.folder / file.path
        with as_user_error(snapshot.name):
            if not path.is_file():
                problems.append(Problem(file.path, file.digest or "there", "missing"))
            elif file.digest is not None:
                require_inside(snapshot.name, path)
                if (found := digest_of(path, file.digest)) != file.digest:
                    problems.append(Problem(file.path, file.digest, found))
    return problems


def discard(snapshot: Snapshot, problems: list[Problem]) -> None:
    """Remove these files; the next pull fetches them again.

    Raises: NotAvailable without permission, and for a file outside the cache, which stays.
    """
    altered = {problem.path for problem in problems}
    for file in snapshot.files:
        if file.path in altered:
            with as_user_error(snapshot.name):
                _keep_if_listed(snapshot, file, frozenset())


def _fetch_small(snapshot: Snapshot) -> list[RemoteFile]:
    """Fetch all files except the weights, four at a time; returns them with their digests."""
    if snapshot.from_cache:
        return []
    pool = ThreadPoolExecutor(max_workers=4)
    try:
        small = [file for file in snapshot.files if not file.is_weights]
        futures = [pool.submit(_fetch_file, snapshot, file, frozenset(), silent) for file in small]
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def _fetch_file(snapshot: Snapshot, file: RemoteFile, known: Known, progress: Progress) -> RemoteFile:
    """Fetch one file unless it is here as listed; returns it with its digest. Raises: NotAvailable, DoesNotFit."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    name, commit = snapshot.name, snapshot.commit
    with as_user_error(name, snapshot.revision):
        if file.digest is None:  # a mirror whose listing gives none; its ETag is the only other word on the bytes
            etag = get_hf_file_metadata(hf_hub_url(name, file.path, revision=commit), retry_on_errors=True).etag
            file = replace(file, digest=require_digest(name, file.path, etag))
        if not _keep_if_listed(snapshot, file, known):
            others = frozenset(other.digest for other in snapshot.files if other.digest) - {file.digest}
            with refuse_etags(others):
                hf_hub_download(name, file.path, revision=commit, tqdm_class=_bar_class(name, file, progress))
            found = digest_of(snapshot.folder / file.path, str(file.digest))
            if not _keep_if_listed(snapshot, file, frozenset()):
                raise NotAvailable(
                    f"{file.path} of {name} came altered, and was not kept: "
                    f"{found[:12]} instead of {str(file.digest)[:12]}",
                    "the same command again; if it is altered again, a proxy or HF_ENDPOINT's mirror does that",
                )
            _name_by_digest(snapshot.folder / file.path, blob_path(name, file.path, str(file.digest)))
    progress(file.path, file.size_bytes, file.size_bytes)
    return file


def _name_by_digest(place: Path, blob: Path) -> None:
    """Have `place` lead to `blob`, whatever ETag the library named its bytes by: no other file's may come to lie there.

    Some mirrors name files by other checksums than they list.
    """
    if place.is_symlink() and place.readlink().name != blob.name:
        (place.parent / place.readlink()).replace(blob)
        place.unlink()
        place.symlink_to(os.path.relpath(blob, place.parent))


def _keep_if_listed(snapshot: Snapshot, file: RemoteFile, known: Known) -> bool:
    """Whether the file is in the snapshot as listed; what lies in its places with other bytes is removed.

    Weights in `known` are not read again. Raises: OSError, NotAvailable for a place outside the cache.
    """
    is_here = False
    places = [snapshot.folder / file.path]
    if file.digest is not None:  # its blob first: a link to one that goes leads nowhere
        places.insert(0, blob_path(snapshot.name, file.path, file.digest))
    for path in places:
        require_inside(snapshot.name, path.parent)
        is_here = is_inside(snapshot.name, path) and file.is_whole(path) and _is_listed(file, path, known)
        if not is_here:
            path.unlink(missing_ok=True)
    return is_here


def _is_listed(file: RemoteFile, path: Path, known: Known) -> bool:
    is_known = file.is_weights and (file.digest, path.stat().st_size) in known
    return is_known or (file.digest is not None and digest_of(path, file.digest) == file.digest)


def _bar_class(name: str, file: RemoteFile, progress: Progress) -> Any:
    """A class that huggingface_hub uses like tqdm, over HTTP and Xet; it draws nothing and calls `progress`."""
    farthest = 0

    class Bar:
        def __init__(self, *_: object, **values: Any) -> None:
            self.total = file.size_bytes
            self.n = int(values.get("initial") or 0)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, count: float | None = 1) -> None:
            # The library goes back when a server ignores its Range; the reported bytes must not.
            nonlocal farthest
            self.n += int(count or 0)
            if file.size_bytes and self.n > file.size_bytes:  # the library would fill the disk before it looks
                raise NotAvailable(
                    f"{file.path} of {name} is longer than the {file.size_bytes} bytes that the Hub lists",
                    "check HF_ENDPOINT, and whether a proxy alters what comes through it",
                )
            if self.n > farthest:
                farthest = self.n
                progress(file.path, farthest, file.size_bytes)

        def update_transfer(self, count: float | None = 1) -> None:
            """Xet's bytes on the wire. They reach the file, and `update`, in flushes that can be a minute apart."""
            if (count or 0) > 0 and farthest < file.size_bytes:
                progress(file.path, farthest, file.size_bytes)

        def set_postfix_str(self, *_: object, **__: object) -> None:
            pass

        set_transfer_postfix_str = set_description_str = refresh = close = set_postfix_str

    return Bar


def _sweep(name: str, now_seconds: float) -> None:
    """Remove the parts of killed downloads: each has a name of its own, so no later download reuses it."""
    for path in repository(name).glob("blobs/*.incomplete"):
        # A pull beside this one may just have moved its part to its place.
        if is_inside(name, path.parent) and path.is_file() and now_seconds - path.stat().st_mtime > ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
