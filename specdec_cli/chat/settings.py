"""The settings of a chat. A value is checked when it is set, never in the middle of a reply."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specdec_cli.errors import UsageError
from specdec_cli.kinds import DEFAULT_RULE, rule_names
from specdec_cli.request import BOUNDS, MAX_K, Constraint, flag, one_name, within
from specdec_cli.session.conversation import OVERFLOWS, Overflow

SAMPLING = {flag(name): name for name in BOUNDS}
SHOWN, HIDDEN, OFF = THINKS = ("shown", "hidden", "off")
WORDS: Mapping[str, tuple[str, ...]] = {
    "think": THINKS,
    "overflow": OVERFLOWS,
    "rule": rule_names(),
    "seed": ("off",),
    "stop": ("off",),
    "k": ("auto",),
}
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How replies are requested and shown. `k` and `stop_repetition` None are the pair's.

    `think` is shown, hidden or off (no thinking).
    """

    k: int | Literal["auto"] | None = None
    drafts: bool = True
    max_tokens: int = 2048
    max_context: int | None = None
    overflow: Overflow = "refuse"
    rule: str = DEFAULT_RULE
    seed: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Mapping[str, float | None] = field(default_factory=dict)
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_repetition: int | None = None
    think: str = SHOWN
    panel: bool = True
    constraint: Constraint | None = None

    def with_value(self, name: str, value: str) -> ChatSettings:
        """The settings with `name` at `value`, as typed.

        Raises: UsageError for an unknown name and for a value out of bounds.
        """
        if name in SAMPLING:
            return replace(self, sampling={**self.sampling, SAMPLING[name]: _sampling(name, value)})
        if name not in _PARSERS:
            close = difflib.get_close_matches(name, NAMES, 1, 0.0)[0]
            raise UsageError(f"/set {name} is none of {', '.join(NAMES)}", f"the nearest: /set {close} VALUE")
        return replace(self, **{name.replace("-", "_"): _PARSERS[name](value)})

    def to_dict(self) -> dict[str, Any]:
        """The settings in a transcript."""
        sampling = {name: value for name, value in self.sampling.items() if value is not None}
        return {
            "k": self.k,
            "drafts": self.drafts,
            "rule": self.rule,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "think": self.think,
            "sampling": sampling,
            **({self.constraint.kind: self.constraint.text} if self.constraint else {}),
        }


def parse_k(value: str) -> int | Literal["auto"]:
    """The value of /k. Raises: UsageError."""
    return "auto" if value == "auto" else _whole("/k", value, 0, MAX_K)


def on_or_off(command: str, value: str) -> bool:
    """Raises: UsageError for anything but on and off."""
    return one_name(command, ("on", "off"))(value) == "on"


def _sampling(name: str, value: str) -> float | None:
    if value == DEFAULT:
        return None
    low, high, off = BOUNDS[SAMPLING[name]]
    try:
        number = int(value) if isinstance(low, int) else float(value)
    except ValueError as error:
        raise UsageError(f"/set {name} {value} is not a number", f"for example: /set {name} {off:g}") from error
    if not low <= number <= high:
        raise UsageError(f"/set {name} {value} is outside {low:g} to {high:g}", f"off is /set {name} {off:g}")
    return number


def _whole(command: str, value: str, low: int, high: int | None = None) -> int:
    try:
        number = int(value)
    except ValueError as error:
        raise UsageError(f"{command} {value} is not a whole number", f"for example: {command} {max(low, 4)}") from error
    checked = within(command, low, high)(number)
    assert checked is not None
    return checked


def _unescaped(text: str) -> str:
    r"""`\n` and `\t` as the characters they stand for: a line cannot hold them."""
    return text.replace("\\n", "\n").replace("\\t", "\t")


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "k": parse_k,
    "max-tokens": lambda value: _whole("/set max-tokens", value, 1),
    "max-context": lambda value: None if value == DEFAULT else _whole("/set max-context", value, 1),
    "seed": lambda value: None if value == "off" else _whole("/set seed", value, 0),
    "stop-repetition": lambda value: None if value == DEFAULT else _whole("/set stop-repetition", value, 0),
    "stop": lambda value: () if value == "off" else (_unescaped(value),),
    **{name: one_name(f"/set {name}", WORDS[name]) for name in ("think", "overflow", "rule")},
}
NAMES = (*SAMPLING, *_PARSERS)
