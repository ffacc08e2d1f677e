"""The clipboard of the machine a person sits at. Law: only where that is this one; else the terminal is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping


def copied_here(text: str, environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether the system's own command took `text`: not every terminal knows OSC 52, Apple's among them."""
    command = "pbcopy" if platform == "darwin" else "wl-copy" if "WAYLAND_DISPLAY" in environment else ""
    path = shutil.which(command, path=environment.get("PATH")) if command else None
    if path is None or "SSH_CONNECTION" in environment:
        return False
    settings = {**environment, "LC_CTYPE": "UTF-8"}  # pbcopy reads Latin otherwise
    try:
        return subprocess.run([path], input=text.encode(), env=settings, timeout=5, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
