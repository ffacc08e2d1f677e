"""How a reply is sampled (pure): what generation_config.json asks for, what flags override, what is in force.

Law: a flag that was not given changes nothing, and values out of bounds name the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_cli.errors import UsageError

RULE_NAMES = ("auto", "token", "block", "coupled", "match")
# Value -> (lowest, highest, what is off).
BOUNDS: Mapping[str, tuple[float, float, float]] = {
    "temperature": (0.0, 100.0, 0.0),
    "top_k": (0, 1_000_000_000, 0),
    "top_p": (0.0, 1.0, 1.0),
    "min_p": (0.0, 1.0, 0.0),
    "repetition_penalty": (0.01, 100.0, 1.0),
    "presence_penalty": (-100.0, 100.0, 0.0),
    "frequency_penalty": (-100.0, 100.0, 0.0),
}
DEFAULTED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def defaults(config: Mapping[str, Any]) -> dict[str, float]:
    """What a generation_config.json asks for. `do_sample` false, or absent without a temperature, means temperature 0.

    Values that are null or out of bounds are left at what is off: a file may not stop a reply.
    """
    found = {name: config[name] for name in DEFAULTED if _within(name, config.get(name))}
    if not config.get("do_sample", "temperature" in found):
        found["temperature"] = 0.0
    elif "temperature" not in found:
        found["temperature"] = 1.0
    return found


def in_force(config: Mapping[str, Any], given: Mapping[str, float | None]) -> dict[str, float]:
    """Every sampling value by name: the flags `given`, else the model's defaults, else off.

    Raises: UsageError for a flag out of its bounds.
    """
    for name, value in given.items():
        if value is not None and not _within(name, value):
            low, high, _ = BOUNDS[name]
            raise UsageError(
                f"--{flag(name)} {value} is outside {low:g} to {high:g}", f"off is --{flag(name)} {off(name):g}"
            )
    off_values = {name: off(name) for name in BOUNDS}
    return off_values | defaults(config) | {name: value for name, value in given.items() if value is not None}


def asked(
    temp: float | None,
    top_p: float | None,
    top_k: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    presence_penalty: float | None,
    frequency_penalty: float | None,
) -> dict[str, float | None]:
    """The command line's flags by the names of BOUNDS. Raises: UsageError for one out of its bounds."""
    given = {
        "temperature": temp,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
    }
    in_force({}, given)
    return given


def rule_in_force(rule: str, seed: int | None, temperature: float) -> str:
    """`auto`: equality at temperature 0, coupled under a seed, else block."""
    if temperature == 0.0:
        return "greedy"
    if rule == "auto":
        return "block" if seed is None else "coupled"
    return rule


def off(name: str) -> float:
    return BOUNDS[name][2]


def flag(name: str) -> str:
    """The option's spelling."""
    return {"temperature": "temp"}.get(name, name.replace("_", "-"))


def parse_bias(entries: tuple[str, ...]) -> tuple[tuple[int, float], ...]:
    """`ID=VALUE` entries as pairs; of one id the last counts.

    Raises: UsageError for anything else.
    """
    found: dict[int, float] = {}
    for entry in entries:
        token, _, value = entry.partition("=")
        try:
            found[int(token)] = float(value)
        except ValueError as error:
            raise UsageError(f"--logit-bias {entry} is not ID=VALUE", "for example: --logit-bias 42=-5") from error
        if int(token) < 0 or found[int(token)] != found[int(token)]:
            raise UsageError(f"--logit-bias {entry} is not possible", "ids start at 0, and a value is a number")
    return tuple(found.items())


def _within(name: str, value: Any) -> bool:
    low, high, _ = BOUNDS[name]
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
