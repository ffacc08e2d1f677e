"""Where tuned drafts are kept: a folder each in the user's data folder, readable only by its owner."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import platformdirs

from specdec_cli.chat.kept import kept_chats
from specdec_cli.chat.transcript import load
from specdec_cli.models.turns import Message


def tuned_folder() -> Path:
    """Where all of them are."""
    return platformdirs.user_data_path("specdec") / "tuned"


@contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder of mode 0700 beside them; what is left in it at the end is deleted. Raises: OSError."""
    tuned_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=tuned_folder(), prefix=".training-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(folder: Path, name: str) -> Path:
    """Gives the adapter in `folder` its place, in that of an older one of the `name`. Raises: OSError."""
    kept = tuned_folder() / name
    shutil.rmtree(kept, ignore_errors=True)
    return folder.rename(kept)


def chat_messages() -> dict[str, list[Message]]:
    """The messages of every kept chat, by the name of its file. Raises: UsageError for a damaged one."""
    found: dict[str, list[Message]] = {}
    for path in kept_chats():
        chat = load(path).conversation
        if chat.turns:
            found[path.name] = [*chat.messages(chat.turns[-1].user)[:-1]]
    return found
