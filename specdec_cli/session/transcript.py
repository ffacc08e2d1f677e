"""Transcripts as JSON Lines. A file is written whole, and read up to a line that is damaged.

The first line is the header; every further one is a message. An answer's line also holds its facts.
"""

from __future__ import annotations

import json
import secrets
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import UsageError, not_written
from specdec_cli.core.format import count
from specdec_cli.core.readfile import odd_kind, open_file, read_file
from specdec_cli.core.textfile import as_utf8
from specdec_cli.session.conversation import Answer, Conversation, Turn

VERSION = 1
MOST_HEADER_BYTES = 1_000_000
NAMES = ("pair", "target", "draft", "target_revision", "draft_revision", "target_adapter", "draft_adapter")


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation, its unique `id`, and the `header` it was saved with: pair and models.

    `left_out`: from which line on its file was not read, and why; empty where all of it was.
    """

    conversation: Conversation
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    header: Mapping[str, Any] = field(default_factory=dict)
    left_out: str = ""


def save(path: Path, transcript: Transcript) -> None:
    """Replaces what `path` holds as a whole; a new file is readable only by its owner.

    Raises: UsageError if `path` holds anything but this conversation, SpecdecError if it cannot be written.
    """
    lines = [{"transcript": VERSION, "id": transcript.id, **transcript.header}, *_lines(transcript.conversation)]
    try:
        _require_ours(path, transcript.id)
        jsonfile.replace_text(path.resolve(), "".join(json.dumps(line) + "\n" for line in lines))
    except OSError as error:
        told = f"{path} cannot be written: {error.strerror}"
        raise not_written(error, told, "save it elsewhere: /save FILE") from error


def require_file(path: Path) -> None:
    """Raises: UsageError for a pipe, a socket or a device: to open one may wait for ever."""
    mode = path.stat().st_mode if path.exists() else stat.S_IFREG
    if kind := odd_kind(mode):
        raise UsageError(f"{path} is {kind}, but a conversation is saved to a file", "name a file: --save talk.jsonl")


def _require_ours(path: Path, id: str) -> None:
    """Raises: UsageError for a file with another content."""
    require_file(path)
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return
    try:
        with open_file(path) as file:
            theirs = jsonfile.parse_object(as_utf8(file.read(MOST_HEADER_BYTES)).partition(b"\n")[0]).get("id")
    except ValueError:  # no JSON, or no UTF-8
        theirs = None
    if theirs != id:
        hint = f"take another name, or continue it: specdec chat --resume {shlex.quote(str(path))}"
        raise UsageError(f"{path} holds something other than this conversation", hint)


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
    """The conversation in `path`, up to the last answer before a line that is damaged; empty lines are none.

    Raises: UsageError if it cannot be read, and with its line and the reason if it is damaged before any answer.
    """
    try:
        require_file(path)
        data = read_file(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "name a file written by /save") from error
    number, turns, left_out = 1, list[Turn](), ""
    system: str | None = None
    user: str | None = None
    try:
        lines = as_utf8(data).rstrip().split(b"\n")
        header = jsonfile.parse_object(lines[0])
        if "event" in header:
            raise UsageError(
                f"{path} is a trace, not a saved chat", f"play it: specdec replay {shlex.quote(str(path))}"
            )
        if header.pop("transcript", None) != VERSION:
            raise ValueError(f"a transcript of version {VERSION} begins with its header")
        if wrong := [name for name in NAMES if not isinstance(header.get(name), str | None)]:
            raise ValueError(f"{wrong[0]} is not a name")
        for number, line in enumerate(lines[1:], 2):
            if not line.strip():
                continue
            entry = jsonfile.parse_object(line)
            role, content = entry.get("role"), entry.get("content")
            if not isinstance(content, str):
                raise ValueError("a message has no content")
            if role == "system" and number == 2:
                system = content
            elif role == "user" and user is None:
                user = content
            elif role == "assistant" and user is not None:
                turns.append(_turn(user, entry))
                user = None
            else:
                raise ValueError(f"a message of {role!r} does not belong here")
        if user is not None:
            raise ValueError("the last message has no answer")
    except ValueError as error:  # no UTF-8 and no JSON, too
        left_out = f"{path}:{number} is damaged: {error}"
        if not turns:
            raise UsageError(left_out, "nothing was loaded; correct that line, or load another file") from error
        left_out += f"; {count(len(turns), 'turn')} before it can be continued, and a save drops the rest"
    return Transcript(Conversation(system, tuple(turns)), str(header.pop("id", "")), header, left_out)


def _turn(user: str, entry: dict[str, Any]) -> Turn:
    known = ("role", "content", "thinking", "reason", "attempt")
    facts = {key: value for key, value in entry.items() if key not in known}
    attempt = entry.get("attempt")
    answer = Answer(entry["content"], str(entry.get("thinking", "")), str(entry.get("reason", "stop")), facts)
    return Turn(user, answer, attempt if isinstance(attempt, int) else 0)
