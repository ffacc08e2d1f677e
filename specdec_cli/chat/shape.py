"""The shape of every answer of a chat. Law: what no answer could keep is refused when it is read_constraint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from specdec_cli.chat.chat import Chat
from specdec_cli.chat.screen import Notice
from specdec_cli.chat.settings import ChatSettings
from specdec_cli.errors import UsageError
from specdec_cli.models.grammar import read_constraint, require_possible, require_uncut
from specdec_cli.request import Constraint, ShapeKind


def shape_command(kind: ShapeKind) -> Callable[[Chat, str], None]:
    """What /schema, /regex and /grammar do: set the shape, take it off, or show it without an argument."""

    def act(chat: Chat, argument: str) -> None:
        if argument:
            shape = None if argument == "off" else _possible(kind, argument, chat.settings.stop)
            chat.settings = replace(chat.settings, constraint=shape)
        chat.screen.show(Notice(_sentence(kind, chat.settings.constraint, whole=not argument)))

    return act


def require_stops(settings: ChatSettings) -> None:
    """Raises: UsageError for a stop string that could cut an answer before its shape is complete."""
    if settings.constraint is None:
        return
    try:
        require_uncut(settings.constraint, settings.stop)
    except UsageError as error:
        raise UsageError(error.message, f"leave it, or first: /{settings.constraint.kind} off") from error


def _possible(kind: ShapeKind, argument: str, stop: tuple[str, ...]) -> Constraint:
    shape = read_constraint(kind, argument, f"/{kind}")
    try:
        require_possible(shape)
    except UsageError as error:
        raise UsageError(error.message, "change it; nothing was changed here") from error
    try:
        require_uncut(shape, stop)
    except UsageError as error:
        raise UsageError(error.message, "first: /set stop off") from error
    return shape


def _sentence(kind: ShapeKind, shape: Constraint | None, whole: bool) -> str:
    if shape is None:
        what = {"schema": "FILE|JSON", "regex": "RE", "grammar": "FILE"}[kind]
        return f"no {'regular expression' if kind == 'regex' else kind} set; /{kind} {what} sets one"
    held = f"every answer keeps the shape of this {shape.noun}"
    return f"{held}: {' '.join(shape.text.split())}" if whole else f"{held}; /{kind} shows it"
