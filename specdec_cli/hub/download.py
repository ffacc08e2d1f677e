"""Downloads a model into the shared cache. Laws: a file reaches its place only after its bytes were compared. A branch
moves to its new commit only after the whole model is here, so an interrupted pull leaves the old model usable.

Files that are already here are compared once as well, because another tool may have brought them. An interrupted file
restarts: huggingface_hub 2 resumes within one run only. Weights are fetched one at a time, so an interruption costs at
most one file.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from specdec_cli.errors import DoesNotFit, NotAvailable
from specdec_cli.hub import manifest
from specdec_cli.hub.failures import explained
from specdec_cli.hub.layout import cache_folder, is_inside, repository, size_text, write_ref
from specdec_cli.hub.progress import Progress, silent
from specdec_cli.hub.snapshot import RemoteFile, Snapshot
from specdec_cli.hub.transfer import Known, bring, is_as_listed, with_digest

# The library drops a connection after about a minute without data, so a part this old belongs to no running download.
ABANDONED_SECONDS = 600.0


def fetch_small(snapshot: Snapshot) -> Path:
    """Fetch everything except the weights, so the verdict comes before gigabytes; returns the snapshot's folder.

    Raises: NotAvailable, DoesNotFit.
    """
    files = tuple(file for file in snapshot.files if not file.is_weights)
    check_space([replace(snapshot, files=files)])
    _fetch_small(snapshot)
    return snapshot.folder


def fetch(snapshot: Snapshot, progress: Progress = silent) -> Path:
    """Fetch the whole model; returns the snapshot's folder. Files that are here and compared cost no call.

    Raises: NotAvailable, also for altered bytes; DoesNotFit before the first byte when the disk is too small.
    """
    with explained(snapshot.name):
        _sweep(snapshot.name, time.time())
        known = manifest.compared_digests(snapshot.name)
    check_space([snapshot])
    small = _fetch_small(snapshot)
    files = [_fetch_file(snapshot, small.get(file.path, file), known, progress) for file in snapshot.files]
    with explained(snapshot.name):
        if not snapshot.held:
            manifest.write(snapshot.name, snapshot.commit, [_entry(snapshot, file) for file in files])
        write_ref(snapshot.name, snapshot.revision, snapshot.commit)
    return snapshot.folder


def check_space(snapshots: Iterable[Snapshot]) -> None:
    """Check that the missing files of these snapshots fit on the disk. Raises: DoesNotFit, with both numbers."""
    needed = {(snapshot.name, snapshot.commit): snapshot.download_bytes for snapshot in snapshots}
    free = free_bytes()
    if sum(needed.values()) > free:
        names = " and ".join(name for name, _ in needed)
        verb = "needs" if len(needed) == 1 else "need"
        raise DoesNotFit(
            f"{names} {verb} {size_text(sum(needed.values()))}, and the disk of {cache_folder()} "
            f"has {size_text(free)} free",
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
        known = manifest.compared_digests(snapshot.name)
        here = [file for file in snapshot.files if file.cached and file.is_weights and not snapshot.held]
        total += sum(file.size_bytes for file in here if (file.digest, file.size_bytes) not in known)
    return total


def _fetch_small(snapshot: Snapshot) -> dict[str, RemoteFile]:
    """Fetch all files except the weights, four at a time; returns them by name."""
    files = [file for file in snapshot.files if not file.is_weights]
    pool = ThreadPoolExecutor(max_workers=4)
    try:
        futures = [pool.submit(_fetch_file, snapshot, file, frozenset()) for file in files]
        return {file.path: future.result() for file, future in zip(files, futures, strict=True)}
    finally:
        pool.shutdown(cancel_futures=True)


def _fetch_file(snapshot: Snapshot, file: RemoteFile, known: Known, progress: Progress = silent) -> RemoteFile:
    """Fetch one file unless it is here; returns it with its digest. Raises: NotAvailable, DoesNotFit."""
    with explained(snapshot.name, snapshot.revision):
        if not snapshot.held:
            file = file if file.digest else with_digest(snapshot, file)
            if not is_as_listed(snapshot.name, file, snapshot.folder / file.path, known):
                bring(snapshot, file, known, progress)
        elif not file.is_whole(snapshot.folder / file.path):
            raise NotAvailable(f"{file.path} of {snapshot.name} is gone", f"specdec pull --target {snapshot.name}")
    progress(file.path, file.size_bytes, file.size_bytes)
    return file


def _entry(snapshot: Snapshot, file: RemoteFile) -> manifest.Entry:
    size_bytes = (snapshot.folder / file.path).stat().st_size
    return manifest.Entry(file.path, size_bytes, str(file.digest))


def _sweep(name: str, now_seconds: float) -> None:
    """Remove the parts of killed downloads: each has a name of its own, so no later download reuses it."""
    for path in repository(name).glob("blobs/*.incomplete"):
        if not (path.is_file() and is_inside(name, path.parent)):
            continue
        with suppress(FileNotFoundError):  # a pull beside this one has just moved its part to its place
            if now_seconds - path.stat().st_mtime > ABANDONED_SECONDS:
                path.unlink()
