"""The fields of a request's body (pure). Law: a value of the wrong kind is refused with the name of its field.

`null` is the same as absent; what nobody asks for is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.jsonfile import kind_of, shown
from specdec_cli.serve.http.errors import bad_field

MOST_DIGITS = 2**63


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a body; `path` leads to it, such as `messages[2]`."""

    values: Mapping[str, Any]
    path: str = ""

    def named(self, name: str) -> str:
        """The whole name of a field of this object."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self.values.get(name) is not None

    def raw(self, name: str) -> Any:
        """The value as it came."""
        return self.values.get(name)

    def text(self, name: str, usual: str | None = None) -> str | None:
        """A text."""
        return str(self._of(name, str, "a text")) if self.has(name) else usual

    def needed(self, name: str) -> str:
        """A text that must be there."""
        return str(self._of(name, str, "a text"))

    def flag(self, name: str, usual: bool = False) -> bool:
        """True or false."""
        return bool(self._of(name, bool, "true or false")) if self.has(name) else usual

    def whole(self, name: str, low: int, high: int | None = None) -> int | None:
        """A whole number within bounds."""
        value = self.number(name, low, MOST_DIGITS if high is None else high)
        if value is None:
            return None
        if value != int(value):
            raise bad_field(self.named(name), f"{value:g} is no whole number")
        return int(value)

    def number(self, name: str, low: float, high: float) -> float | None:
        """A finite number within bounds."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise bad_field(self.named(name), f"it is {shown(value)}, and a number is expected")
        if not low <= value <= high:
            raise bad_field(self.named(name), f"{shown(value)} is outside {low:g} to {high:g}")
        return value

    def choice(self, name: str, known: Sequence[str]) -> str | None:
        """One of these texts."""
        value = self.text(name)
        if value is not None and value not in known:
            raise bad_field(self.named(name), f"{shown(value)} is none of {', '.join(known)}")
        return value

    def inner(self, name: str) -> Fields | None:
        """An object inside."""
        return Fields(self._of(name, dict, "an object"), self.named(name)) if self.has(name) else None

    def listed(self, name: str) -> list[Any]:
        """A list; empty where there is none."""
        return list(self._of(name, list, "a list")) if self.has(name) else []

    def each(self, name: str) -> Iterator[Fields]:
        """The objects of a list."""
        for place, value in enumerate(self.listed(name)):
            path = f"{self.named(name)}[{place}]"
            if not isinstance(value, dict):
                raise bad_field(path, f"it is {kind_of(value)}, and an object is expected")
            yield Fields(value, path)

    def texts(self, name: str) -> tuple[str, ...]:
        """A text, or a list of them."""
        value = self.raw(name)
        found = [value] if isinstance(value, str) else self.listed(name)
        if not all(isinstance(one, str) for one in found):
            raise bad_field(self.named(name), "a text or a list of texts is expected")
        return tuple(found)

    def refuse(self, **reasons: str) -> None:
        """Refuse these fields where they are given and ask for something."""
        for name, reason in reasons.items():
            if self.raw(name) not in (None, False, "", [], {}):
                raise bad_field(self.named(name), reason)

    def _of(self, name: str, kind: type, expected: str) -> Any:
        value = self.raw(name)
        if not isinstance(value, kind):
            said = "it is missing" if value is None else f"it is {kind_of(value)}"
            raise bad_field(self.named(name), f"{said}, and {expected} is expected")
        return value
