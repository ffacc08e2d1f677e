"""What specdec keeps on this machine, besides models: where, how large, and the command that removes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from specdec_cli.core.format import size
from specdec_cli.hub.cache import heads_folder
from specdec_cli.pairs.catalog import confirmed_file
from specdec_cli.pairs.drafts import compared_file
from specdec_cli.pairs.registry import user_file
from specdec_cli.pairs.tuned import tuned_folder
from specdec_cli.session.cost_file import cost_file
from specdec_cli.session.disk_entries import DISK_CACHE, disk_cache_folder
from specdec_cli.session.kept_chats import kept_folder
from specdec_cli.system.config import config_file
from specdec_cli.system.servers import servers_folder

# Where Typer installs the completion of each shell.
COMPLETIONS = (".bash_completions/specdec.sh", ".zfunc/_specdec", ".config/fish/completions/specdec.fish")


def places() -> Iterator[tuple[str, list[Path], str]]:
    """(name, files and folders, command) of everything that may be there; without a command, `rm` removes it."""
    state, tuned = platformdirs.user_state_path("specdec"), tuned_folder()
    yield "chats", _inside(kept_folder()), "specdec chats delete --all"
    yield "typed lines", [state / "history"], ""
    yield "tuned", [path for path in _inside(tuned) if path.name[0] != "."], "specdec rm NAME"
    yield "stopped trainings", [path for path in _inside(tuned) if path.name[0] == "."], ""
    yield "disk cache", [disk_cache_folder()], f"specdec rm {DISK_CACHE}"
    yield "heads", _inside(heads_folder()), "specdec rm NAME"
    yield "measured costs", [cost_file().path], ""
    yield "self-test", [state / "selftest.json"], ""
    yield "servers' logs", [servers_folder()], ""
    yield "Hub's answers", [confirmed_file()], ""
    yield "compared tokenizers", [compared_file()], ""
    yield "settings", [config_file()], ""
    yield "your pairs", [user_file()], ""
    yield "completion", [Path.home() / name for name in COMPLETIONS], ""


def kept_here() -> list[tuple[str, str, str]]:
    """(name, size, the command that removes it with its place) of what is there."""
    found = []
    for name, paths, command in places():
        there = [path for path in paths if path.exists()]
        if command and there:
            found.append((name, size(sum(map(_bytes, there))), f"{command} (in {_short(there[0].parent)})"))
        elif there:
            found += [(name, size(_bytes(path)), f"rm {'-r ' * path.is_dir()}{_short(path)}") for path in there]
    return found


def _short(path: Path) -> str:
    """As a shell takes it."""
    if path.is_relative_to(Path.home()):
        return f"~/{shlex.quote(str(path.relative_to(Path.home())))}"
    return shlex.quote(str(path))


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _bytes(path: Path) -> int:
    """Of the file, or of all files in the folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())
