"""The config as defaults of options. Law: click alone chooses among the sources.

Of an option click takes the flag, else its variable, else the map of defaults, which is the config. A preset goes into
that map, and the variables of its keys are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import typer
from typer.core import TyperGroup

from specdec_cli.command.table import OF_A_PAIR, SETTINGS, is_setting, moved
from specdec_cli.command.values import parse_idle, parse_size
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import BOUNDS, effective, flag, parse_bias, parse_draft_context, parse_k
from specdec_cli.core.tomlfile import TomlFile
from specdec_cli.pairs.pair import nearest
from specdec_cli.system.config import (
    FOLDERS,
    PAIR,
    model_folders,
    read_config,
)

PRESETS = "presets"
# What a value of each type is, and one of them; and the types, by what stands for a value in a help.
TYPES = {"int": ("a whole number", "4"), "float": ("a number", "0.5"), "bool": ("true or false", "true")}
KINDS = {"": bool, "N": int, "T": float, "P": float, "X": float}
# What an option's command checks of a value, beside what its row does.
CHECKS: Mapping[str, Callable[[Any], object]] = {
    "k": parse_k,
    "draft_context": parse_draft_context,
    "logit_bias": lambda value: parse_bias(value.split()),
    "idle_unload": parse_idle,
    "cache_disk": partial(parse_size, "--cache-disk"),
    **{
        flag(one).replace("-", "_"): partial(lambda name, value: effective({}, {name: value}, "--"), one)
        for one in BOUNDS
    },
}


def read_settings() -> TomlFile:
    """The config, whose values were checked. Raises: UsageError with file, line and the nearest known key."""
    file = read_config()
    model_folders(file)
    _check(file, file.values)
    return file


def _check(file: TomlFile, values: Any, *table: str) -> None:
    """Check what the config has as `table`. Raises: UsageError."""
    if not isinstance(values, dict):
        raise UsageError(f"{file.place(*table)}: {'.'.join(table)} is not a table", f"begin one with [{PRESETS}.NAME]")
    for key, value in values.items():
        if table == (PRESETS,) or (table, key) == ((), PRESETS):
            _check(file, value, *table, key)
        elif table or key != FOLDERS:
            try:
                values[key] = checked((*table, key), value)
            except UsageError as error:
                raise UsageError(f"{file.place(*table, key)}: {error.message}", error.hint) from error


def checked(path: tuple[str, ...], value: Any) -> Any:
    """`value` as the option at the end of `path` takes it. Raises: UsageError for an unknown key or a wrong value."""
    key, command = path[-1], f"specdec config set {'.'.join(path)}"
    if key in OF_A_PAIR:
        raise UsageError(f"{key} belongs to a pair", "specdec pairs add NAME --target ID --draft ID")
    if (row := SETTINGS.get(key)) is None:
        known = [*SETTINGS, *(FOLDERS, PRESETS)] if len(path) == 1 else SETTINGS
        gone = moved(f"--{key.replace('_', '-')}")
        raise UsageError(
            f"unknown key {shown(key)}", gone or nearest(key, known, "specdec config show --all lists all")
        )
    kind = KINDS.get(row.metavar, str)
    checks = [check for check in (row.checks, CHECKS.get(key)) if check]
    if kind is str and checks and type(value) in (int, float, bool):
        value = str(value).lower()  # `k = 4`, which may be `"auto"`
    if type(value) is not kind and not (kind is float and type(value) is int):
        what, example = TYPES.get(kind.__name__, ("text", "TEXT"))
        told = shown(json.dumps(value, default=str, ensure_ascii=False))
        raise UsageError(f"{key} {told} is not {what}", f"for example: {command} {example}")
    try:
        for check in checks:
            check(value)
    except UsageError as error:
        option = re.compile(rf"(?<!\S)(?:{'|'.join('|'.join(row.flags).split('/'))})(?=\s)")
        raise UsageError(option.sub(key, error.message), option.sub(command, error.hint)) from error
    return value


def shown(value: Any) -> str:
    """A value on a line, cut where it is long."""
    text = str(value).lower() if isinstance(value, bool) else " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def use_config(context: typer.Context) -> None:
    """Make the config the defaults of every command below `context`, and let `--preset` be read first.

    Its pair is none of them: as the default pair it gives way to a target, and to the models of a conversation.
    Raises: UsageError.
    """
    own = {key: value for key, value in read_settings().values.items() if key != PAIR}
    commands = cast(TyperGroup, context.command).commands
    context.default_map = {name: {key: own[key] for key in own if is_setting(name, key)} for name in commands}
    for option in (option for command in commands.values() for option in command.params if option.name == "preset"):
        option.is_eager, option.callback = True, lambda line, _, name: apply_preset(cast(typer.Context, line), name)
    for option in (one for command in commands.values() for one in command.params if one.name in (PAIR, *OF_A_PAIR)):
        option.callback = lambda line, own, value: give_way(cast(typer.Context, line), str(own.name), value)


def apply_preset(context: typer.Context, name: str | None) -> str | None:
    """Put the preset of that name above the variables and the config. Raises: UsageError for an unknown one."""
    if name is None:
        return None
    presets = read_settings().values.get(PRESETS, {})
    if name not in presets:
        hint = nearest(name, presets, f"specdec config set {PRESETS}.NAME.SETTING VALUE begins one")
        raise UsageError(f"there is no preset {name}", hint)
    context.obj = presets[name]
    for option in context.command.params:
        if option.name in context.obj:
            option.envvar = None
    context.default_map = {**(context.default_map or {}), **context.obj}
    if PAIR in context.obj:  # it gives way to a target on the line, which is read before
        context.default_map[PAIR] = lambda: None if context.params.get("target") else context.obj[PAIR]
    return name


def give_way(context: typer.Context, name: str, value: Any) -> Any:
    """`value`, but None where a variable names a pair or its models and the line, which is read before, the other."""
    others = ("target",) if name == PAIR else (PAIR, "name")
    named = any(is_on_the_line(context, other) for other in others)
    return None if named and is_by_variable(context, name) else value


def is_by_variable(context: typer.Context, name: str) -> bool:
    """Whether a variable says it, and neither a flag nor the preset does."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "ENVIRONMENT"


def is_on_the_line(context: typer.Context, name: str) -> bool:
    """Whether a flag or the preset says it."""
    source = context.get_parameter_source(name)
    return name in (context.obj or {}) or (source is not None and source.name == "COMMANDLINE")
