"""From the Hub into the shared cache. Laws: complete files are kept; a branch means its new commit only once the
whole model is here, so an interrupted pull never takes away the model that worked before.

An interrupted file restarts: huggingface_hub 2 resumes within one run only. Weights therefore come one at a time,
so that an interruption costs one file.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, cast

from specdec_cli.errors import DoesNotFit, NotAvailable
from specdec_cli.hub.failures import AGAIN, explained
from specdec_cli.hub.layout import cache_folder, repository, size_text, write_ref
from specdec_cli.hub.snapshot import RemoteFile, Snapshot

# The library gives a connection up after about a minute without data; ten are surely dead.
ABANDONED_SECONDS = 600.0


class Progress(Protocol):
    """Hears of every file: bytes done of all its bytes. Never goes back; its last call for a file says all."""

    def __call__(self, path: str, done_bytes: int, total_bytes: int, /) -> None: ...


def silent(path: str, done_bytes: int, total_bytes: int, /) -> None:
    """A Progress that tells nobody."""


def fetch_small(snapshot: Snapshot) -> Path:
    """Everything but the weights, so that verdicts come before gigabytes; the snapshot's folder.

    Raises: NotAvailable, DoesNotFit.
    """
    files = [file for file in snapshot.files if not file.is_weights]
    pool = ThreadPoolExecutor(max_workers=4)
    try:
        for future in [pool.submit(_fetch_file, snapshot, file, silent) for file in files]:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
    return snapshot.folder


def fetch(snapshot: Snapshot, progress: Progress = silent) -> Path:
    """The whole model; the snapshot's folder. No call where everything is here.

    Raises: NotAvailable; DoesNotFit when the disk is too small, before the first byte.
    """
    with explained(snapshot.name):
        _sweep(snapshot.name, time.time())
    check_space([snapshot])
    fetch_small(snapshot)
    for file in snapshot.files:
        _fetch_file(snapshot, file, progress)
    with explained(snapshot.name):
        write_ref(snapshot.name, snapshot.revision, snapshot.commit)
    return snapshot.folder


def check_space(snapshots: Iterable[Snapshot]) -> None:
    """Is there room for all that these snapshots still lack? Raises: DoesNotFit, with both numbers."""
    needed = {(snapshot.name, snapshot.commit): snapshot.download_bytes for snapshot in snapshots}
    free = free_bytes()
    if sum(needed.values()) > free:
        names = " and ".join(name for name, _ in needed)
        raise DoesNotFit(
            f"{names} needs {size_text(sum(needed.values()))}, and the disk of {cache_folder()} "
            f"has {size_text(free)} free",
            "free some space (specdec rm NAME), or set HF_HOME to a folder on a bigger disk",
        )


def free_bytes() -> int:
    """Free space where the cache is, or will be made."""
    folder = cache_folder().expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _fetch_file(snapshot: Snapshot, file: RemoteFile, progress: Progress) -> None:
    """One file into the cache, unless it is there. Raises: NotAvailable, DoesNotFit."""
    from huggingface_hub import hf_hub_download

    path = snapshot.folder / file.path
    with explained(snapshot.name, snapshot.revision):
        if not file.is_whole(path):
            hf_hub_download(
                snapshot.name,
                file.path,
                revision=snapshot.commit,
                tqdm_class=cast(Any, bar_class(file, progress)),
                force_download=_is_damaged(snapshot, file),
            )
        if not file.is_whole(path):
            raise NotAvailable(
                f"{file.path} of {snapshot.name} has {path.stat().st_size} bytes here and {file.size_bytes} on the Hub",
                AGAIN,
            )
    progress(file.path, file.size_bytes, file.size_bytes)


def _is_damaged(snapshot: Snapshot, file: RemoteFile) -> bool:
    """Is a file of the wrong size in the way, which the library would take for the real one?"""
    blob = repository(snapshot.name) / "blobs" / str(file.sha256 or file.git_sha1)
    return any(path.is_file() and not file.is_whole(path) for path in (snapshot.folder / file.path, blob))


def _sweep(name: str, now_seconds: float) -> None:
    """Remove what killed downloads left behind: the library gives each a new name and never looks again."""
    for path in repository(name).glob("blobs/*.incomplete"):
        if path.is_file() and now_seconds - path.stat().st_mtime > ABANDONED_SECONDS:
            path.unlink(missing_ok=True)


def bar_class(file: RemoteFile, progress: Progress) -> type:
    """What huggingface_hub takes for a tqdm class, over HTTP and Xet alike; it draws nothing and tells `progress`."""
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
            # The library steps back when a server ignores its Range; a display must not.
            nonlocal farthest
            self.n += int(count or 0)
            done = min(self.n, file.size_bytes or self.n)
            if done > farthest:
                farthest = done
                progress(file.path, done, file.size_bytes)

        def update_transfer(self, count: float | None = 1) -> None:
            """Xet counts bytes on the wire apart from bytes on disk: only the disk's are the file's."""

        def set_postfix_str(self, *_: object, **__: object) -> None:
            pass

        set_transfer_postfix_str = set_description_str = refresh = close = set_postfix_str

    return Bar
