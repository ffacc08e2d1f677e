"""`specdec config`, and the config as defaults of options. Law: click alone chooses among the sources.

Of an option click takes the flag, else its variable, else the map of defaults, which is the config. A preset goes into
that map, and the variables of its keys are not read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperGroup

from specdec_cli.cli.command import grouped, notify
from specdec_cli.cli.serve import KeepOptions
from specdec_cli.cli.table import OF_A_PAIR, SETTINGS, is_setting, moved
from specdec_cli.core.errors import UsageError
from specdec_cli.core.jsonfile import NotJson, parse
from specdec_cli.core.kinds import DRAFTERS
from specdec_cli.core.request import BOUNDS, effective, flag, one_name, parse_bias, parse_draft_context, parse_k
from specdec_cli.core.tomlfile import TomlFile
from specdec_cli.pairs.pair import nearest
from specdec_cli.system.config import (
    FOLDERS,
    FOLDERS_VARIABLE,
    PAIR,
    config_file,
    model_folders,
    read_config,
    write_config,
)

app = typer.Typer()
config_app = typer.Typer(help="Your settings, in one file.\n\nFlags, presets and SPECDEC_* stand above them.")
app.add_typer(config_app, name="config")
PRESETS = "presets"
# What a value of each type is, and one of them; and the types, by what stands for a value in a help.
TYPES = {"int": ("a whole number", "4"), "float": ("a number", "0.5"), "bool": ("true or false", "true")}
KINDS = {"": bool, "N": int, "T": float, "P": float, "X": float}
# What an option's command checks of a value, beside what its row does.
CHECKS: Mapping[str, Callable[[Any], object]] = {
    "k": parse_k,
    "draft_context": parse_draft_context,
    "drafter": one_name("--drafter", tuple(DRAFTERS)),
    "logit_bias": lambda value: parse_bias(value.split()),
    "idle_unload": lambda value: KeepOptions(idle_unload=value).idle_seconds(),
    **{flag(one).replace("-", "_"): partial(lambda name, value: effective({}, {name: value}), one) for one in BOUNDS},
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
    if kind is str and checks and type(value) in (int, float):
        value = str(value)  # `k = 4`, which may be `"auto"`
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
        if option.name in context.obj or (PAIR in context.obj and option.name in OF_A_PAIR):
            option.envvar = None
    context.default_map = {**(context.default_map or {}), **context.obj}
    if PAIR in context.obj:  # it gives way to a target on the line, which is read before
        context.default_map[PAIR] = lambda: None if context.params.get("target") else context.obj[PAIR]
    return name


def is_on_the_line(context: typer.Context, name: str) -> bool:
    """Whether a flag or the preset says it."""
    source = context.get_parameter_source(name)
    return name in (context.obj or {}) or (source is not None and source.name == "COMMANDLINE")


@config_app.command("show")
@grouped
def show(*, context: typer.Context, preset: str | None = None, every: bool = False) -> None:
    """What is set, and by what.

    It is what commands take where a flag does not say otherwise.
    """
    from specdec_cli.pairs.catalog import registry
    from specdec_cli.ui.display import print_columns

    root, config, known = cast(typer.Context, context.find_root()), read_settings(), registry()
    use_config(root)
    presets = config.values.get(PRESETS, {})
    found: dict[str, tuple[Any, str, Any]] = {}
    for name, command in cast(TyperGroup, root.command).commands.items():
        alone = typer.Context(command, info_name=name, parent=root)
        apply_preset(alone, preset)
        for option in command.params:
            if option.name not in found and is_setting(name, option.name):
                value, said_by = option.consume_value(alone, {})
                found[option.name] = value, said_by.name, option.envvar
    chosen = found[PAIR][0] or known.default_pair
    pair = known.pairs.get(chosen) if chosen else None
    rows = [("file", str(config.path), "" if config.text else "not there yet")]
    for key, row in SETTINGS.items():
        value, source, variable = found[key]
        if source == "ENVIRONMENT":
            source = str(variable)
        elif source == "DEFAULT_MAP":
            table = (PRESETS, preset) if preset and key in presets[preset] else ()
            source = Path(config.place(*table, key)).name
        elif key == PAIR and chosen:
            value, source = chosen, Path(known.default_place).name
        elif not every:
            continue
        elif pair and (own := getattr(pair, key, None)) is not None:
            value, source = own, f"pair {chosen}, {'your' if pair.source == 'yours' else 'packaged'} models.toml"
        else:
            value, source = ("–", row.default or "default") if value is None else (value, "default")
        rows.append((key, shown(value), source))
    held = {FOLDERS: ", ".join(map(str, model_folders()))}
    for name, values in presets.items():
        held[f"{PRESETS}.{name}"] = ", ".join(f"{key} {shown(value)}" for key, value in values.items())
    named = {FOLDERS: FOLDERS_VARIABLE} if FOLDERS_VARIABLE in os.environ else {}
    rows += [(key, text, named.get(key) or Path(config.place(key)).name) for key, text in held.items() if text]
    print_columns(sys.stdout, rows)


@config_app.command("edit")
def edit() -> None:
    """Open it in $VISUAL or $EDITOR; then check it."""
    from specdec_cli.pairs.catalog import registry

    editor, file = os.environ.get("VISUAL") or os.environ.get("EDITOR"), config_file()
    if not editor:
        raise UsageError("neither VISUAL nor EDITOR names an editor", "for example: EDITOR=nano specdec config edit")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        problem: object = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        problem = error
    if problem:
        raise UsageError(f"the editor {editor} failed: {problem}", "name another: EDITOR=nano specdec config edit")
    read_settings()
    registry()  # a default pair that is none
    notify(f"{file} is valid", plain=False)


@config_app.command("set", context_settings={"ignore_unknown_options": True})  # `-0.5` is a value
@grouped
def set_(*, setting: str, value: list[str] | None = None) -> None:
    """Set a setting, or remove it.

    The file's other lines stay.
    """
    file, (table, _, last) = config_file(), setting.rpartition(".")
    first, _, preset = table.partition(".")
    if table and not (first == PRESETS and preset):
        raise UsageError(f"unknown key {setting}", f"of a preset: specdec config set {PRESETS}.NAME.SETTING VALUE")
    path = (*((PRESETS, preset) if table else ()), last.replace("-", "_"))
    text = " ".join(value or ())
    given: Any = text if value else None
    if value and path == (FOLDERS,):
        given = [folder if folder.startswith("~") else str(Path(folder).absolute()) for folder in value]
        model_folders(TomlFile(file, "", {FOLDERS: given}))
    elif value:
        row = SETTINGS.get(path[-1])
        if row and (row.metavar in KINDS or path[-1] in CHECKS):
            with suppress(NotJson):
                given = parse(text)
        checked(path, given)
    if path == (PAIR,):
        from specdec_cli.pairs.registry import load_registry, packaged_file, set_default, user_file

        if value:
            load_registry(packaged_file(), user_file()).find(text)
        set_default(file, user_file(), given)
    else:
        write_config(file, path, given)
    told = f"set {setting} to {shown(json.dumps(given, ensure_ascii=False))} in" if value else f"removed {setting} from"
    notify(f"{told} {file}", plain=False)
