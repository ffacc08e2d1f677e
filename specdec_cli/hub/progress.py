"""What a download tells of itself. Law: a display hears whole bytes of whole files, and never that they went back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from specdec_cli.hub.snapshot import RemoteFile


class Progress(Protocol):
    """Hears of every file: bytes done of all its bytes. Never goes back; its last call for a file says all."""

    def __call__(self, path: str, done_bytes: int, total_bytes: int, /) -> None: ...


def silent(path: str, done_bytes: int, total_bytes: int, /) -> None:
    """A Progress that tells nobody."""


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
