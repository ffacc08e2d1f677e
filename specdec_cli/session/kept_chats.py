"""Chats that are kept: each a file of its own in the user's data folder, as --save writes it.

Nothing is kept unless a person is told so at the first one, and what was deleted stays deleted.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import platformdirs

from specdec_cli.core.errors import SpecdecError, UsageError, reason
from specdec_cli.session.disk_entries import remove_chats
from specdec_cli.session.transcript import Transcript, load

TOLD = "this chat is kept: specdec chats; --private keeps none"
DELETED = "this chat was deleted, so it is no longer kept; /save FILE saves it"
FORKED = "another specdec continued this chat, so it is kept here as a chat of its own"


def kept_folder() -> Path:
    """Where chats are kept."""
    return platformdirs.user_data_path("specdec") / "chats"


def kept_chats() -> list[Path]:
    """The files of all kept chats, the one that was written last first."""
    return sorted(kept_folder().glob("[!.]*.jsonl"), key=lambda path: (_written(path), path.name), reverse=True)


def kept_chat(number: int) -> Path:
    """The file of the chat that `specdec chats` lists under `number`. Raises: UsageError."""
    known = kept_chats()
    if not 1 <= number <= len(known):
        raise UsageError(f"there is no chat {number}: {len(known)} are kept", "specdec chats lists their numbers")
    return known[number - 1]


def last_chat(tell: Callable[[str], None]) -> Path | None:
    """The file of the chat that was kept last; `tell` hears of each that is damaged, and that there is no other."""
    for path in kept_chats():
        try:
            load(path)
            return path
        except UsageError as error:
            tell(error.message)
    tell("there is no chat to continue: this is a new one")
    return None


def written_on(path: Path) -> str:
    """The day of its last turn, and of this year's the time."""
    then = time.localtime(_written(path) / 1e9)
    return time.strftime("%d %b %H:%M" if then.tm_year == time.localtime().tm_year else "%d %b %Y", then)


def pair_of(chat: Transcript) -> str:
    """The name of the pair that it began with."""
    return str(chat.header.get("pair") or "–")


def described(path: Path) -> tuple[str, str, str, str]:
    """When it was written, pair, turns, first words."""
    when = written_on(path)
    try:
        chat = load(path)
    except UsageError as error:
        return when, "–", "–", error.message
    turns = chat.conversation.turns
    return when, pair_of(chat), str(len(turns)), turns[0].user if turns else ""


def delete(paths: Sequence[Path]) -> dict[Path, str]:
    """Deletes chats, what was kept of their reading, and what kills left of their writing.

    Returns why each stays that cannot be deleted.
    """
    remove_chats([path.stem for path in paths])
    stay = _unlinked(paths)
    drafts = kept_folder().glob("*.jsonl" + 8 * "[a-z0-9_]")  # by mkstemp
    ours = (path for path in drafts if not path.with_name(path.name.partition(".jsonl")[0] + ".jsonl").exists())
    return stay | _unlinked(ours)


def _unlinked(paths: Iterable[Path]) -> dict[Path, str]:
    stay = {}
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            stay[path] = error.strerror or reason(error)
    return stay


class Keeper:
    """Writes the chat under way, whole after each turn; no failure ends it."""

    def __init__(self, path: Path | None = None, id: str = "", tells: bool = True) -> None:
        """`path` is the file of the kept chat `id`, which goes on. One that never `tells` keeps no first chat."""
        self._path, self._id, self._tells, self._seen = path, id, tells, _written(path) if path else 0
        self._deleted = self._failed = False

    def kept_as(self, transcript: Transcript) -> str:
        """The name of the chat's file, empty unless it is there, written by nobody else."""
        kept = self._path if transcript.id == self._id else None
        return kept.stem if kept and _written(kept) == self._seen else ""

    def keep(self, transcript: Transcript, save: Callable[[Path], None]) -> str:
        """Has the conversation saved to its own file, if it has turns; returns what to say of that, a failure once."""
        said, turns, folder = "", transcript.conversation.turns, kept_folder()
        if transcript.id != self._id:  # after /clear or /load
            self._id, self._path, self._deleted = transcript.id, None, False
        if self._path and (now := _written(self._path)) != self._seen:
            said, self._path, self._deleted = FORKED if now else DELETED, None, not now
        if self._deleted or not (turns or self._path) or not (self._tells or folder.is_dir()):
            return said
        path = self._path or folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}.jsonl"
        try:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True)
                said = TOLD
            if turns:
                save(path)
            else:
                path.unlink(missing_ok=True)
        except (SpecdecError, OSError) as error:
            said, self._failed = "" if self._failed else f"this turn is not kept: {reason(error)}", True
            return said
        self._path, self._seen, self._failed = path if turns else None, _written(path), False
        return said


def _written(path: Path) -> int:
    """When, in nanoseconds since 1970; 0 where no file is."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
