"""release.py TAG: the changelog's section for that tag; an error where tag, version and changelog disagree."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHANGELOG = ".github/CHANGELOG.md"


def problem(message: str, hint: str) -> str:
    return f"error: {message}\nhint: {hint}"


def notes(text: str, version: str) -> str | None:
    """The section `## VERSION, YYYY-MM-DD` without its heading; None where there is none with a day."""
    found = re.search(rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1].strip() if found else None


def main(tag: str, root: Path = ROOT) -> str | None:
    """Prints the notes. Returns the two lines of an error, or None."""
    declared = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    code = re.search(r'^__version__ = "(.*)"$', (root / "specdec_cli/version.py").read_text("utf-8"), re.M)
    if code is None or code[1] != declared:
        return problem(f"pyproject.toml says {declared}, specdec_cli {code and code[1]}", "make them one version")
    if tag != f"v{declared}":
        return problem(f"the tag is {tag}, the version {declared}", f"git tag v{declared}")
    said = notes((root / CHANGELOG).read_text("utf-8"), declared)
    if not said:
        return problem(f"{CHANGELOG} has no section '## {declared}, YYYY-MM-DD'", "write what users gain and lose")
    print(said)
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
