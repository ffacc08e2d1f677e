"""Reports the progress of a download. Law: the bytes reported for a file never decrease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from specdec_cli.hub.snapshot import RemoteFile


class Progress(Protocol):
    """Called with a file's bytes done and total bytes. The last call for a file has both equal.

    A call with as many bytes as before says that data came which is not in the file yet.
    """

    def __call__(self, path: str, done_bytes: int, total_bytes: int, /) -> None: ...


def silent(path: str, done_bytes: int, total_bytes: int, /) -> None:
    """A Progress that shows nothing."""


def bar_class(file: RemoteFile, progress: Progress) -> type:
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
            done = min(self.n, file.size_bytes or self.n)
            if done > farthest:
                farthest = done
                progress(file.path, done, file.size_bytes)

        def update_transfer(self, count: float | None = 1) -> None:
            """Xet's bytes on the wire. They reach the file, and `update`, in flushes that can be a minute apart."""
            if (count or 0) > 0 and farthest < file.size_bytes:
                progress(file.path, farthest, file.size_bytes)

        def set_postfix_str(self, *_: object, **__: object) -> None:
            pass

        set_transfer_postfix_str = set_description_str = refresh = close = set_postfix_str

    return Bar
