"""Downloads a model into the shared cache with huggingface_hub, and compares what came with the Hub's listing.

Altered bytes are removed. A branch moves to its new commit only after the whole model is here and compared, so an
interrupted pull leaves the old model usable. Files that are already here are compared once as well, because another
tool may have brought them. Weights are fetched one at a time, so an interruption costs at most one file. The comparison
finds what a mirror, a proxy, a connection or a disk altered, and no Hub that lies both in its listing and in its bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub

from specdec_cli.core.errors import DoesNotFit, NotAvailable
from specdec_cli.core.format import size
from specdec_cli.core.progress import OnStep, Step, unseen
from specdec_cli.core.readfile import read_file
from specdec_cli.hub.cache import cache_folder, repository, require_digest
from specdec_cli.hub.cached import Problem, RemoteFile, is_compared, stored, write_record
from specdec_cli.hub.client import ELSEWHERE, as_user_error, library
from specdec_cli.hub.snapshot import HubSnapshot

# The library drops a connection after about a minute without data, so a part this old belongs to no running download.
ABANDONED_SECONDS = 600.0

OnBytes = Callable[[str, int, int], None]
"""Called with a file, its bytes done, which never decrease, and all its bytes. The last call has both equal.

A call with as many bytes as before says that data came which is not in the file yet.
"""


def silent(path: str, done_bytes: int, total_bytes: int, /) -> None:
    """A Progress that shows nothing."""


def fetch_small(snapshot: HubSnapshot, report: OnStep = unseen) -> Path:
    """Fetch everything except the weights, so the verdict comes before gigabytes; returns the snapshot's folder.

    `report` hears of how many bytes that are not here how many came. Raises: NotAvailable, DoesNotFit.
    """
    small = replace(snapshot, files=tuple(file for file in snapshot.files if not file.is_weights))
    came = {file.path: 0 for file in small.files if not file.cached}
    short = snapshot.name.rsplit("/", 1)[-1]

    def hear(path: str, done_bytes: int, file_bytes: int, /) -> None:
        if path in came:
            came[path] = done_bytes
            report(Step("", sum(came.values()), small.download_bytes, "bytes", f"{short}/{path}"))

    if not snapshot.from_cache:
        check_space([small])
        _fetch_small(small, hear)
    return snapshot.folder


def fetch(snapshot: HubSnapshot, progress: OnBytes = silent) -> Path:
    """Fetch the whole model; returns the snapshot's folder. Files that are here and compared cost no call.

    Raises: NotAvailable, also for altered bytes; DoesNotFit before the first byte when the disk is too small.
    """
    if snapshot.from_cache:
        return snapshot.folder
    name, commit, folder = snapshot.name, snapshot.commit, snapshot.folder
    check_space([snapshot])
    with as_user_error(name):
        _sweep(name)
        compared = is_compared(name, folder)
    files = list(snapshot.files) if compared else _fetch_files(snapshot, progress)
    with as_user_error(name):
        if not compared:
            write_record(name, commit, [replace(f, size_bytes=(folder / f.path).stat().st_size) for f in files])
        ref = repository(name) / "refs" / snapshot.revision
        if snapshot.revision != commit and not (ref.is_file() and read_file(ref).decode() == commit):
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(commit, encoding="utf-8")
    return folder


def check_space(snapshots: Iterable[HubSnapshot]) -> None:
    """Check that the missing files of these snapshots fit on the disk. Raises: DoesNotFit, with both numbers."""
    needed = {(snapshot.name, snapshot.commit): snapshot.download_bytes for snapshot in snapshots}
    require_space([name for name, _ in needed], sum(needed.values()))


def require_space(names: Sequence[str], needed_bytes: int, heads: Path | None = None) -> None:
    """Check that so much fits on the disk of the cache, or of the folder of `heads`. Raises: DoesNotFit."""
    if needed_bytes > (free := free_bytes(heads)):
        needs = f"{' and '.join(names)} {'needs' if len(names) == 1 else 'need'} {size(needed_bytes)}"
        place = heads or cache_folder()
        text = f"{needs}, and the disk of {place} has {size(free)} free"
        raise DoesNotFit(text, f"free some space (specdec rm NAME){'' if heads else ELSEWHERE}")


def free_bytes(folder: Path | None = None) -> int:
    """Free space on the disk of `folder`, None: of the cache, which need not exist yet."""
    folder = (folder or cache_folder()).expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def verify(snapshot: HubSnapshot, report: OnStep = unseen) -> list[Problem]:
    """Read every file here, weights included, and remove those with other bytes; the next pull fetches them again.

    `report` hears what is read next. Raises: NotAvailable where a file cannot be read or removed.
    """
    found, sizes = list[Problem](), [file.size_bytes for file in snapshot.files]
    with as_user_error(snapshot.name):
        for at, file in enumerate(snapshot.files):
            report(Step("", sum(sizes[:at]), sum(sizes), "bytes", file.path))
            found += filter(None, [_remove_altered(snapshot, file)])
    return found


def _fetch_files(snapshot: HubSnapshot, progress: OnBytes) -> list[RemoteFile]:
    """Fetch the files, small ones first; returns them with their digests."""
    files = _fetch_small(snapshot, silent)
    for file in files:
        progress(file.path, file.size_bytes, file.size_bytes)
    return files + [_fetch_file(snapshot, file, progress) for file in snapshot.files if file.is_weights]


def _fetch_small(snapshot: HubSnapshot, progress: OnBytes) -> list[RemoteFile]:
    """What holds no weights, four files at a time."""
    small = [file for file in snapshot.files if not file.is_weights]
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda file: _fetch_file(snapshot, file, progress), small))


def _fetch_file(snapshot: HubSnapshot, file: RemoteFile, progress: OnBytes) -> RemoteFile:
    """Fetch one file unless it is here as listed; returns it with its digest. Raises: NotAvailable, DoesNotFit."""
    name, commit = snapshot.name, snapshot.commit
    with as_user_error(name):
        if file.digest is None:  # a mirror whose listing gives none; its ETag is the only other word on the bytes
            url = huggingface_hub.hf_hub_url(name, file.path, revision=commit)
            etag = huggingface_hub.get_hf_file_metadata(url, retry_on_errors=True).etag
            file = replace(file, digest=require_digest(name, file.path, etag))
        if _remove_altered(snapshot, file):
            huggingface_hub.hf_hub_download(name, file.path, revision=commit, tqdm_class=_bar_class(file, progress))
            if problem := _remove_altered(snapshot, file):
                raise NotAvailable(
                    f"{file.path} of {name} arrived altered, and was discarded: "
                    f"{problem.found[:12]} instead of {problem.expected[:12]}",
                    "run the same command again; if it is altered again, suspect a proxy or HF_ENDPOINT's mirror",
                )
    progress(file.path, file.size_bytes, file.size_bytes)
    return file


def _remove_altered(snapshot: HubSnapshot, file: RemoteFile) -> Problem | None:
    """How the file differs here from what is listed; what lies in its places with other bytes is removed.

    Raises: OSError.
    """
    first = last = None
    for path in snapshot.places(file):  # its blob first: a link to one that goes leads nowhere
        if last := file.difference(path, read_weights=True):
            if payload := stored(path):  # else the library links it again, by its size alone
                payload.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            first = last if first is None or first.found == "missing" else first
    return last and first


def _bar_class(file: RemoteFile, progress: OnBytes) -> Any:
    """A class that huggingface_hub uses like tqdm, over HTTP and Xet; it draws nothing and calls `progress`."""
    farthest = 0

    class Bar(library().silent_tqdm):  # type: ignore[misc]  # the library is imported at its first use
        n = 0

        def update(self, count: float | None = 1) -> None:
            # The library goes back when a server ignores its Range; the reported bytes must not.
            nonlocal farthest
            self.n += int(count or 0)
            if self.n > farthest:
                farthest = self.n
                progress(file.path, farthest, file.size_bytes)

        def update_transfer(self, count: float | None = 1) -> None:
            """Xet's bytes on the wire. They reach the file, and `update`, in flushes that can be a minute apart."""
            if (count or 0) > 0 and farthest < file.size_bytes:
                progress(file.path, farthest, file.size_bytes)

        def set_postfix_str(self, *_: object, **__: object) -> None: ...

        set_transfer_postfix_str = set_postfix_str

    return Bar


def _sweep(name: str) -> None:
    """Remove the parts of killed downloads: each has a name of its own, so no later download reuses it."""
    for path in repository(name).glob("blobs/*.incomplete"):
        if path.is_file() and is_abandoned(path):
            path.unlink(missing_ok=True)


def is_abandoned(path: Path) -> bool:
    """Whether no running download writes to this part, which it may move to its place at any moment."""
    return path.exists() and time.time() - path.stat().st_mtime > ABANDONED_SECONDS
