"""Two specdecs on one machine: other commands of that name on the PATH, and code that is not what was installed.

Nothing is run: a command's version is the one in the environment of the interpreter that its first lines name.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DISTRIBUTION = "specdec-cli"
INTERPRETER = re.compile(rb"(/[^\0\n\"']*)/bin/python[\d.]*")
UNINSTALL = "remove one: uv tool uninstall, pipx uninstall or pip uninstall specdec-cli; brew uninstall specdec"


def other_commands(own: Path, path: str) -> list[tuple[Path, str | None]]:
    """(command, version) of each `specdec` on `path` from another environment than `own`'s.

    The version is None where it is no specdec of ours.
    """
    seen, found = {_environment(own)}, []
    for folder in path.split(os.pathsep):
        command = Path(folder) / "specdec"
        if not (folder and os.access(command, os.X_OK) and command.is_file()):
            continue
        environment = _environment(command)
        if environment not in seen:
            seen.add(environment)
            found.append((command, _version(environment)))
    return found


def problem(own: Path, path: str, running: str) -> tuple[str, str] | None:
    """(what is wrong, what helps) of the command `own`, whose code is version `running`; None if it is alone."""
    for command, other in other_commands(own, path):
        what = f"specdec {other}" if other else "another program"
        return f"{command} is {what}, and {own} is specdec {running}: the PATH decides which one runs", UNINSTALL
    try:
        stated = version(DISTRIBUTION)
    except PackageNotFoundError:
        return None
    if stated != running:
        message = f"{own} runs the code of {running}, and {stated} is installed in {sys.prefix}"
        return message, f"{sys.executable} -m pip install --force-reinstall --no-deps {DISTRIBUTION}"
    return None


def _environment(command: Path) -> Path:
    """The folder of its interpreter's environment, else the command itself."""
    try:
        real = command.resolve()
        with real.open("rb") as stream:
            named = INTERPRETER.search(stream.read(512))
    except OSError:
        return command
    return Path(os.fsdecode(named[1])) if named else real


def _version(environment: Path) -> str | None:
    folders = environment.glob("lib/python*/site-packages/specdec_cli-*.dist-info")
    return next((folder.name.split("-")[1].removesuffix(".dist") for folder in folders), None)
