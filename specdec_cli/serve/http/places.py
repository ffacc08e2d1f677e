"""Where this machine's files are. Law: no answer says it; whoever runs the server reads it in the log."""

from __future__ import annotations

import re
from pathlib import Path

# A path from the root, from a home or from here; in an address of the web nothing is one.
PATH = re.compile(r"(?<![\w./~-])(?:file:/{0,2}|~[\w.-]*|\.{1,2})?/(?=[^\s/])")
# A Hub id, or a path like one.
TWO_NAMES = re.compile(r"[^\s:;,'\"()]+/[^\s:;,'\"()]+")


def says_where(text: str) -> bool:
    """Whether `text` has a path of this machine. Where one ends nobody can tell, for folders' names have blanks."""
    return bool(PATH.search(text)) or any(_exists(names) for names in TWO_NAMES.findall(text))


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:
        return False  # it is too long for a name
