"""`specdec config`: what is set, and by what; and how it is changed."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperGroup

from specdec_cli.command.command import grouped, notify
from specdec_cli.command.config import CHECKS, KINDS, PRESETS, apply_preset, checked, read_settings, shown, use_config
from specdec_cli.command.table import SETTINGS, is_setting, row_of
from specdec_cli.core.errors import UsageError
from specdec_cli.core.jsonfile import NotJson, parse
from specdec_cli.core.tomlfile import TomlFile
from specdec_cli.system.config import (
    FOLDERS,
    FOLDERS_VARIABLE,
    PAIR,
    config_file,
    model_folders,
    write_config,
)

app = typer.Typer()
config_app = typer.Typer(help="Your settings, in one file.\n\nFlags, presets and SPECDEC_* stand above them.")
app.add_typer(config_app, name="config")


@config_app.command("show")
@grouped
def show(*, context: typer.Context, preset: str | None = None, every: bool = False) -> None:
    """What is set, and by what.

    It is what commands take where a flag does not say otherwise.
    """
    from specdec_cli.pairs.catalog import registry
    from specdec_cli.terminal.display import print_columns

    root, config, known = cast(typer.Context, context.find_root()), read_settings(), registry()
    use_config(root)
    presets = config.values.get(PRESETS, {})
    found: dict[str, tuple[Any, str, Any]] = {}
    told: dict[str, dict[str, str]] = {}  # of each setting, by command
    for name, command in cast(TyperGroup, root.command).commands.items():
        alone = typer.Context(command, info_name=name, parent=root)
        apply_preset(alone, preset)
        for option in command.params:
            if is_setting(name, option.name):
                value, said_by = option.consume_value(alone, {})
                found.setdefault(option.name, (value, said_by.name, option.envvar))
                usual = row_of(name, option.name).default if value is None else shown(value)
                told.setdefault(option.name, {})[name] = usual
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
            usual = row.default if value is None else shown(value)
            value, source = ("–", row.default or "default") if value is None else (value, "default")
            others = [f"{command}: {other}" for command, other in told[key].items() if other != usual]
            source = "; ".join([source, *others])
        rows.append((key, shown(value), source))
    held = {FOLDERS: ", ".join(map(str, model_folders()))}
    for name, values in presets.items():
        held[f"{PRESETS}.{name}"] = ", ".join(f"{key} {shown(value)}" for key, value in values.items())
    named = {FOLDERS: FOLDERS_VARIABLE} if FOLDERS_VARIABLE in os.environ else {}
    rows += [(key, text, named.get(key) or Path(config.place(key)).name) for key, text in held.items() if text]
    print_columns(sys.stdout, rows)


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
