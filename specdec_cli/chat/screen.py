"""What a chat shows and suggests, and the screen that shows it (pure). The chat decides what, the screen how."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from specdec_cli.errors import SpecdecError
from specdec_cli.events import Event
from specdec_cli.models.text import Thinking


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence on what the chat did."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Names and values that a command shows."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Markdown:
    """An answer shown again; `gap` adds an empty line after it."""

    text: str
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Quote:
    """Foreign text verbatim, set apart from answers."""

    text: str


Item = Notice | Rows | Markdown | Quote


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A word that may replace the last `replaces` characters typed, and its description."""

    word: str
    replaces: int
    about: str = ""


class Events(Protocol):
    """Takes the events of one reply."""

    def handle(self, event: Event) -> None: ...


class Screen(Protocol):
    """Shows everything of a chat."""

    def show(self, item: Item) -> None: ...

    def error(self, error: SpecdecError) -> None: ...

    def reply(self, name: str, tags: Thinking | None, hidden: bool, panel: bool) -> AbstractContextManager[Events]:
        """The display of one reply of the pair `name`; `tags` enclose its thinking, which may be `hidden`."""

    def copy(self, text: str) -> str:
        """Copies `text` to the clipboard; returns a sentence on it. Raises: SpecdecError where nothing can copy."""
