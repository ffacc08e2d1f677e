"""Which value of a config.json contradicts the types that mlx-lm declares? Law: asked only after a model failed.

mlx-lm declares types loosely, and working models break them (a null for a number), so a contradiction refuses nothing:
it explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from specdec_cli.jsonfile import shown

KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
MOST = 1 << 31


def contradiction(config: Mapping[str, Any], arguments: type) -> str:
    """The first value of `config`, or of its `text_config`, that is not what `arguments` declares; empty without one.

    `arguments` is the dataclass into which mlx-lm reads a configuration.
    """
    try:
        hints = get_type_hints(arguments)
    except (NameError, TypeError):
        hints = {}
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, Mapping) else {}):
        for key, value in part.items():
            if value is None:
                continue
            expected = _expected(hints.get(key))
            if expected and not any(_fits(value, kind) for kind in expected):
                wanted = " or ".join(KINDS[kind] for kind in expected)
                return f"{key} is {shown(value)}, and {wanted} is expected"
            if key in hints and isinstance(value, int | float) and not isinstance(value, bool) and _absurd(key, value):
                return f"{key} is {shown(value)}, and no model has such a number"
    return ""


def _expected(hint: Any) -> list[type]:
    """The plain kinds that a declaration allows; empty where it allows others."""
    if get_origin(hint) in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
    else:
        options = [hint]
    kinds = [get_origin(option) or option for option in options]
    return kinds if all(kind in KINDS for kind in kinds) else []


def _fits(value: Any, kind: type) -> bool:
    if kind in (int, float):
        whole = isinstance(value, int) or (isinstance(value, float) and (kind is float or value.is_integer()))
        return whole and not isinstance(value, bool)
    return isinstance(value, kind)


def _absurd(key: str, value: float) -> bool:
    """Whether a number is none of a size: not finite, or for counts and sizes below 1 or beyond any memory."""
    if not isfinite(value):
        return True
    counts = key.endswith(("_size", "_dim", "_heads", "_layers")) or key.startswith("num_")
    return counts and not 1 <= value < MOST
