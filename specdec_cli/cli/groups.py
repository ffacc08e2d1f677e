"""Options travel in groups. Law: a grouped command takes the same command line as one that repeats every option."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints

# Every command's help ends with these, in this order, whichever group they come from.
LAST = (
    *("drafter", "target_revision", "draft_revision", "max_context", "on_overflow", "kv_bits"),
    *("trace", "offline", "force"),
)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer reads it: a parameter that is a dataclass of options becomes one parameter for each field.

    A group's defaults are its fields' own, or those of the instance that is the parameter's default.
    """
    types = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    options: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            options.append(parameter.replace(annotation=types[name], kind=Parameter.KEYWORD_ONLY))
            continue
        members = get_type_hints(groups[name], include_extras=True)
        default = groups[name]() if parameter.default is Parameter.empty else parameter.default
        for field in fields(default):
            value = getattr(default, field.name)
            option = Parameter(field.name, Parameter.KEYWORD_ONLY, default=value, annotation=members[field.name])
            options.append(option)
    options.sort(key=lambda option: LAST.index(option.name) if option.name in LAST else -1)

    @wraps(command)
    def wrapped(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    wrapped.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # read by inspect.signature
    wrapped.__annotations__ = {option.name: option.annotation for option in options}
    return wrapped
