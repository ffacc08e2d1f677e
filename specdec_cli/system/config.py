"""The user's config.toml: where it is, and what other layers than the command line read of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import platformdirs

from specdec_cli.core.errors import UsageError
from specdec_cli.core.readfile import expanded
from specdec_cli.core.tomlfile import TomlFile, edit_toml, read_toml

NEW = "# Your settings of specdec: specdec help environment\n"
FOLDERS, FOLDERS_VARIABLE, PAIR = "model_folders", "SPECDEC_MODEL_FOLDERS", "pair"


def config_file() -> Path:
    """Where it is, or would be: SPECDEC_CONFIG, else the platform's configuration folder."""
    named = os.environ.get("SPECDEC_CONFIG")
    return Path(named) if named else platformdirs.user_config_path("specdec") / "config.toml"


def read_config(path: Path | None = None) -> TomlFile:
    """The file, empty where there is none. Raises: UsageError for what cannot be read, or is no TOML."""
    path = path or config_file()
    return read_toml(path) if os.path.lexists(path) else TomlFile(path, "", {})


def write_config(file: Path, path: tuple[str, ...], value: Any) -> None:
    """Put the key at the end of `path`, the tables before it; None takes it out. Raises: UsageError, SpecdecError."""
    import tomlkit
    from tomlkit.items import AoT, Table

    with edit_toml(file, NEW) as document:
        table: Any = document
        for name in path[:-1]:
            table = table.setdefault(name, tomlkit.table(is_super_table=table is document))
            if not isinstance(table, dict):
                raise UsageError(f"{name} in {file} is not a table", f"begin one in that file: [{'.'.join(path[:-1])}]")
        others = [item for key, item in document.body if key and not isinstance(item, Table | AoT)]
        if value is None and path[-1] not in table:
            raise UsageError(f"{'.'.join(path)} is not set in {file}", "specdec config show lists what is")
        if value is None:
            del table[path[-1]]
        elif table is document and others and path[-1] not in table:
            # After the last such line: tomlkit would put it between a comment and the table below it.
            others[-1].trivia.trail = f"{others[-1].trivia.trail.rstrip()}\n{tomlkit.dumps({path[-1]: value})}"
        else:
            table[path[-1]] = value


def model_folders(config: TomlFile | None = None) -> tuple[Path, ...]:
    """The folders in which the user keeps models; one may be gone, as with its disk.

    Those of `config`; without it of the variable, separated as in PATH, else of config.toml.
    Raises: UsageError for anything but whole paths in a config.
    """
    named = os.environ.get(FOLDERS_VARIABLE)
    if config is None and named is not None:
        return tuple(expanded(one).absolute() for one in named.split(os.pathsep) if one.strip())
    config = config or read_config()
    folders = config.values.get(FOLDERS, [])
    texts = isinstance(folders, list) and all(isinstance(folder, str) for folder in folders)
    paths = tuple(expanded(folder) for folder in folders) if texts else ()
    if not texts or not all(path.is_absolute() and "\0" not in str(path) for path in paths):
        hint = f'for example: {FOLDERS} = ["~/models"]'
        raise UsageError(f"{config.place(FOLDERS)}: {FOLDERS} is not a list of absolute paths", hint)
    return paths
