"""Reads what `--trace` wrote (pure). A damaged line is refused by its number; a trace that breaks off still plays.

A file may hold several replies; each begins with its start event. An error between two, as of a chat's command that
was mistyped, belongs to none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import SCHEMA, Event, Failure, Finish, Prefill, RoundDone, Start, from_dict
from specdec_cli.core.readfile import read_file
from specdec_cli.core.stats import Stats
from specdec_cli.core.textfile import as_utf8

_HINT: Final = "write one with: specdec run --trace FILE 'your prompt'"


@dataclass(frozen=True, slots=True)
class TraceReply:
    """One reply as it was recorded; `end` is None where the recording breaks off."""

    start: Start
    prefill: Prefill | None = None
    rounds: tuple[RoundDone, ...] = ()
    end: Finish | Failure | None = None

    @property
    def finish(self) -> Finish:
        """The finish event; for a reply that broke off, one made from its rounds."""
        return self.end if isinstance(self.end, Finish) else _broken_off(self.rounds)

    def events(self) -> Iterator[Event]:
        """Every event in order; a reply that broke off ends like an interrupted one."""
        yield self.start
        if self.prefill is not None:
            yield self.prefill
        yield from self.rounds
        yield self.end or self.finish


@dataclass(frozen=True, slots=True)
class Trace:
    """The replies of a file, at least one."""

    replies: tuple[TraceReply, ...]

    @property
    def cut_short(self) -> bool:
        """Whether the recording breaks off in its last reply."""
        return self.replies[-1].end is None


def read_trace(path: Path) -> Trace:
    """The trace in this file, without an incomplete last line.

    Raises: UsageError, naming file and line, for a file that cannot be read or is no trace.
    """
    replies: list[TraceReply] = []
    for number, event in _events(path):
        if not isinstance(event, Start) and (not replies or replies[-1].end is not None):
            if isinstance(event, Failure):
                continue
            raise UsageError(f"{path}, line {number}: {event.event} where a start event is expected", _HINT)
        match event:
            case Start():
                replies.append(TraceReply(event))
            case Prefill():
                replies[-1] = replace(replies[-1], prefill=event)
            case RoundDone():
                replies[-1] = replace(replies[-1], rounds=(*replies[-1].rounds, event))
            case Finish(stats=stats):
                # An older file may lack figures; they follow from its rounds.
                figures = {**_broken_off(replies[-1].rounds).stats, **stats}
                replies[-1] = replace(replies[-1], end=replace(event, stats=figures))
            case Failure():
                replies[-1] = replace(replies[-1], end=event)
    if not replies:
        raise UsageError(f"{path} holds no trace: it has no complete start event", _HINT)
    return Trace(tuple(replies))


def _events(path: Path) -> Iterator[tuple[int, Event]]:
    """(line number, event) of every line that is not empty."""
    try:
        lines = as_utf8(read_file(path, piped=True)).split(b"\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}", _HINT) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, _event(jsonfile.parse_object(line))
        except jsonfile.NotJson as error:
            if number == len(lines) > 1:  # no newline follows: the writer was stopped in this line
                return
            raise UsageError(f"{path}, line {number} is not JSON: {error}", _HINT) from error
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}", _HINT) from error


def _event(values: Mapping[str, Any]) -> Event:
    """Raises: ValueError for what is no event of the contract."""
    if values.get("event") == Start.event and values.get("schema", SCHEMA) != SCHEMA:
        raise ValueError(f"trace schema {values['schema']}, but this specdec reads {SCHEMA}")
    event = from_dict(values)
    match event:
        case RoundDone(round=round, pieces=pieces):
            drafted = len(round.draft)
            if not 0 <= round.accepted <= drafted:
                raise ValueError(f"round event: {round.accepted} accepted of {drafted} drafted tokens")
            if len(pieces) != drafted:
                raise ValueError(f"round event: {len(pieces)} pieces for {drafted} drafted tokens")
        case Finish(stats=stats):
            _require_figures(stats)
    return event


def _require_figures(stats: Mapping[str, Any]) -> None:
    """Raises: ValueError for a figure that is no number, or is null where the contract allows no null."""
    for name, usual in Stats().to_dict().items():
        value = stats.get(name, usual)
        listed = isinstance(value, list) and all(map(_number, value))
        sound = {list: listed, int: _number(value), float: _number(value), type(None): value is None or _number(value)}
        if not sound.get(type(usual), isinstance(value, type(usual))):
            raise ValueError(f"finish event: {name} is {json.dumps(value)}, but a figure is expected")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _broken_off(rounds: tuple[RoundDone, ...]) -> Finish:
    """The finish event after these rounds; its times are those of the passes alone."""
    stats = Stats()
    for done in rounds:
        stats.fold(done.round)
    stats.decode_seconds = sum(done.round.draft_seconds + done.round.verify_seconds for done in rounds[1:])
    tokens = tuple(token for done in rounds for token in done.round.emitted)
    return Finish("interrupted", "".join(done.text for done in rounds), tokens, "", stats.to_dict())
