"""A report on the screen and as two files. Law: both files are written or neither, and none before it was shown."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from specdec_cli.audit.report.result import Report
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.ui.display import print_doctor, print_notice
from specdec_cli.ui.report.figures import NOTHING_PRIVATE, summary
from specdec_cli.ui.report.page import html_page


def report_files(path: Path) -> tuple[Path, Path]:
    """(JSON file, page beside it). Raises: UsageError for a name that is not *.json or a folder that is not there."""
    if path.suffix.lower() != ".json":
        raise UsageError(f"--report {path} ends in {path.suffix or 'nothing'}", f"name a .json file: {path.stem}.json")
    files = path, path.with_suffix(".html")
    if not path.parent.is_dir():
        problem = f"is in {path.parent}, and there is no such folder"
        raise UsageError(f"--report {path} {problem}", "name a file in a folder that exists")
    for file in files:
        if file.is_dir():
            raise UsageError(f"--report {path} cannot be written: {file.name} is a folder", "name another file")
    return files


def print_report(out: TextIO, report: Report) -> None:
    """The summary, and what the files will not hold."""
    print_doctor(out, summary(report))
    print_notice(out, NOTHING_PRIVATE, plain=False)


def write_report(report: Report, files: tuple[Path, Path]) -> None:
    """Write both files, each whole or not at all. Raises: SpecdecError if one cannot be written."""
    texts = (json.dumps(report.to_dict(), indent=1) + "\n", html_page(report))
    parts = [path.with_name(f".{path.name}.part") for path in files]
    try:
        for part, text in zip(parts, texts, strict=True):
            part.write_text(text, encoding="utf-8")
        for part, path in zip(parts, files, strict=True):
            part.replace(path)
    except OSError as error:
        raise SpecdecError(
            f"{files[0]} cannot be written: {error.strerror}", "check the folder's permissions"
        ) from error
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink()
