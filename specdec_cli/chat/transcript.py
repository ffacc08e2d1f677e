"""Transcripts as JSON Lines. A file is written whole and read whole, or refused with the number of its line.

The first line is the header; every further one is a message. An answer's line also holds its facts.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec_cli import jsonfile
from specdec_cli.errors import DoesNotFit, SpecdecError, UsageError
from specdec_cli.session.conversation import Answer, Conversation, Turn

VERSION = 1
# Longer first lines are not ours: a header names a pair and its settings.
MOST_HEADER_CHARACTERS = 1_000_000
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
NAMES = ("pair", "target", "draft", "target_revision", "draft_revision")


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation, its unique `id`, and the `header` it was saved with: pair, models, settings."""

    conversation: Conversation
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    header: Mapping[str, Any] = field(default_factory=dict)


def save(path: Path, transcript: Transcript) -> None:
    """Writes a temporary file, readable only by its owner, and renames it to `path`.

    Raises: UsageError if `path` holds anything but this conversation, SpecdecError if it cannot be written.
    """
    lines = [{"transcript": VERSION, "id": transcript.id, **transcript.header}, *_lines(transcript.conversation)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    draft = None
    try:
        _require_ours(path, transcript.id)
        real = path.resolve()
        descriptor, draft = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}")  # of mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(draft).replace(real)
    except OSError as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        kind = DoesNotFit if error.errno in DISK_FULL else SpecdecError
        raise kind(f"{path} cannot be written: {error.strerror}", "save it elsewhere: /save FILE") from error


def _require_ours(path: Path, id: str) -> None:
    """Raises: UsageError for a file with another content."""
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return
    try:
        with path.open(encoding="utf-8") as file:
            theirs = jsonfile.parse_object(file.readline(MOST_HEADER_CHARACTERS)).get("id")
    except ValueError:  # no JSON, or no UTF-8
        theirs = None
    if theirs != id:
        what = "holds something else" if theirs is None else "holds another conversation"
        raise UsageError(f"{path} {what}", f"take another name, or continue it: specdec chat --resume {path}")


def _lines(conversation: Conversation) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    if conversation.system:
        lines.append({"role": "system", "content": conversation.system})
    for turn in conversation.turns:
        answer = turn.answer
        thinking = {"thinking": answer.thinking} if answer.thinking else {}
        said = {"role": "assistant", "content": answer.text, **thinking, "reason": answer.reason}
        lines += [{"role": "user", "content": turn.user}, {**said, "attempt": turn.attempt, **answer.facts}]
    return lines


def load(path: Path) -> Transcript:
    """The conversation in `path`.

    Raises: UsageError with file, line and reason if it cannot be read or is damaged.
    """
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "name a file that /save has written") from error
    except UnicodeDecodeError as error:
        raise _damaged(path, 1, "it is not UTF-8 text") from error
    entries = [_entry(path, number, line) for number, line in enumerate(lines, 1)]
    if "event" in entries[0]:
        raise UsageError(f"{path} is a trace, not a saved chat", f"play it: specdec replay {path}")
    if entries[0].get("transcript") != VERSION:
        raise _damaged(path, 1, f"a transcript of version {VERSION} begins with its header")
    header = dict(entries[0])
    for key in ("transcript", "id"):
        header.pop(key, None)
    for key in NAMES:
        if not isinstance(header.get(key), str | None):
            raise _damaged(path, 1, f"{key} is {jsonfile.shown(header[key])}, and a name is expected")
    return Transcript(_conversation(path, entries), str(entries[0].get("id")), header)


def _conversation(path: Path, entries: list[dict[str, Any]]) -> Conversation:
    system: str | None = None
    user: str | None = None
    turns: list[Turn] = []
    for number, entry in enumerate(entries[1:], 2):
        role, content = entry.get("role"), entry.get("content")
        if not isinstance(content, str):
            raise _damaged(path, number, "a message has no content")
        if role == "system" and system is None and not turns and user is None:
            system = content
        elif role == "user" and user is None:
            user = content
        elif role == "assistant" and user is not None:
            turns.append(_turn(user, entry))
            user = None
        else:
            raise _damaged(path, number, f"a message of {role!r} does not belong here")
    if user is not None:
        raise _damaged(path, len(entries), "the last message has no answer")
    return Conversation(system, tuple(turns))


def _turn(user: str, entry: dict[str, Any]) -> Turn:
    known = ("role", "content", "thinking", "reason", "attempt")
    facts = {key: value for key, value in entry.items() if key not in known}
    attempt = entry.get("attempt")
    answer = Answer(entry["content"], str(entry.get("thinking", "")), str(entry.get("reason", "stop")), facts)
    return Turn(user, answer, attempt if isinstance(attempt, int) else 0)


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = jsonfile.parse(line)
    except jsonfile.NotJson as error:
        raise _damaged(path, number, f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise _damaged(path, number, "it is no JSON object")
    return found


def _damaged(path: Path, line: int, reason: str) -> UsageError:
    return UsageError(
        f"{path}:{line} is damaged: {reason}", "nothing was loaded; correct that line, or load another file"
    )
