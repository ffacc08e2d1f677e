"""What a report may not hold (pure). Law: no user name, host name or path of a folder leaves this machine in one."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Replacements = tuple[tuple[re.Pattern[str], str], ...]


def of_this_person() -> Replacements:
    """Patterns of the home path, the user's name and the host's names, each with what stands for it."""
    home = str(Path.home())
    return replacements((home, str(Path.home().resolve())), user_name(), socket.gethostname())


def of_folders(models: Sequence[str]) -> Replacements:
    """Patterns of the models that are named by an absolute path: of it, the last name is kept."""
    paths = sorted((model for model in models if Path(model).is_absolute()), key=len, reverse=True)
    return tuple((re.compile(re.escape(path.rstrip("/"))), f"…/{Path(path).name}") for path in paths)


def user_name() -> str:
    """The user's name; empty where the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no entry for the user's number
        return ""


def replacements(homes: tuple[str, ...], user: str, host: str) -> Replacements:
    """The longest come first. Names are found as whole words, so that a short one leaves others as they are."""
    names = [(host, "(host)"), (host.partition(".")[0], "(host)"), (user, "(user)")]
    paths = [(re.compile(re.escape(home)), "~") for home in homes if len(home) > 1]
    words = [(re.compile(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])"), shown) for name, shown in names if name]
    return (*paths, *words)


def without_names(value: Any, found: Replacements) -> Any:
    """`value`, JSON-ready, with every string replaced where it names the person or the machine; keys are ours."""
    if isinstance(value, str):
        for pattern, shown in found:
            value = pattern.sub(shown, value)
        return value
    if isinstance(value, Mapping):
        return {key: without_names(item, found) for key, item in value.items()}
    return [without_names(item, found) for item in value] if isinstance(value, list | tuple) else value
