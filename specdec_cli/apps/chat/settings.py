"""The settings of a chat. A value is checked when it is set, never in the middle of a reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from specdec_cli.core.errors import UsageError
from specdec_cli.core.kinds import K, rule_names
from specdec_cli.core.request import BOUNDS, Request, effective, flag, nearest, off, one_name, parse_k, within
from specdec_cli.core.template import NO_VALUES, TemplateValues
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.conversation import OVERFLOWS, Overflow

SAMPLING = {flag(name): name for name in BOUNDS}
SHOWN, HIDDEN = THOUGHTS = ("shown", "hidden")
DEFAULT = "default"
WORDS: Mapping[str, tuple[str, ...]] = {
    "overflow": OVERFLOWS,
    "rule": rule_names(),
    "seed": ("off",),
    "stop": ("off",),
    "k": ("auto",),
    "max-context": (DEFAULT,),
}


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How replies are requested and shown. `template` is what it is asked, and `thoughts` are shown or hidden.

    `drafter`, `asked_k` and `asked_stop_repetition` were asked for, whatever the pair; None: each pair's own.
    """

    request: Request
    drafts: bool = True
    overflow: Overflow = "refuse"
    template: TemplateValues = NO_VALUES
    thoughts: str = SHOWN
    panel: bool = True
    drafter: str | None = None
    asked_k: K | None = None
    asked_stop_repetition: int | None = None

    def asking(self, **changes: Any) -> ChatSettings:
        """The settings with another request."""
        return replace(self, request=replace(self.request, **changes))

    def asking_pair(self, pair: Pair) -> ChatSettings:
        """The settings with a request to that pair."""
        k, stop_repetition = self.asked_k, self.asked_stop_repetition
        return self.asking(
            k=pair.k if k is None else k,
            stop_repetition=pair.stop_repetition if stop_repetition is None else stop_repetition,
        )

    def with_value(self, name: str, value: str) -> ChatSettings:
        """The settings with `name` at `value`, as typed.

        Raises: UsageError for an unknown name and for a value out of bounds.
        """
        if name not in NAMES:
            close = nearest(name, NAMES)
            hint = f"the nearest: /set {close} {value}" if close else f"names: {', '.join(NAMES)}"
            raise UsageError(f"/set has no {name}", hint)
        if name in SAMPLING:
            return self.asking(sampling={**self.request.sampling, SAMPLING[name]: _sampling(name, value)})
        field, parsed = name.replace("-", "_"), _PARSERS[name](value)
        return replace(self, overflow=parsed) if name == "overflow" else self.asking(**{field: parsed})


def _sampling(name: str, value: str) -> float | None:
    if value == DEFAULT:
        return None
    known = SAMPLING[name]
    kind, what = (int, "a whole number") if isinstance(off(known), int) else (float, "a number")
    try:
        number = kind(value)
    except ValueError as error:
        raise UsageError(f"/set {name} {value} is not {what}", f"off is /set {name} {off(known):g}") from error
    return effective({}, {known: number}, "/set ")[known]


def _whole(name: str, low: int, none: str = "") -> Callable[[str], int | None]:
    def parse(value: str) -> int | None:
        if value == none:
            return None
        try:
            return within(f"/set {name}", low)(int(value))
        except ValueError as error:
            message = f"/set {name} {value} is not a whole number"
            raise UsageError(message, f"for example: /set {name} {max(low, 4)}") from error

    return parse


def _stops(value: str) -> tuple[str, ...]:
    r"""`\n` and `\t` are the characters they stand for: a line cannot hold them."""
    return () if value == "off" else (value.replace("\\n", "\n").replace("\\t", "\t"),)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "k": partial(parse_k, option="/k"),
    "max-tokens": _whole("max-tokens", 1),
    "max-context": _whole("max-context", 1, DEFAULT),
    "seed": _whole("seed", 0, "off"),
    "stop-repetition": _whole("stop-repetition", 0),
    "stop": _stops,
    **{name: one_name(f"/set {name}", WORDS[name]) for name in ("overflow", "rule")},
}
NAMES = (*SAMPLING, *_PARSERS)
