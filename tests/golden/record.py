"""What was recorded, where, and how a run is compared with it.

Law: a difference fails with the path to the first one and both values. `GOLDEN=record` writes instead of comparing.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import isolation

DATA = Path(__file__).parent / "data"
RECORDING = os.environ.get("GOLDEN") == "record"
if RECORDING:
    isolation.open_folders.add(DATA.resolve())


def here() -> dict[str, str]:
    """Processor and mlx version: what decides how logits are rounded."""
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return {"processor": found[1] if found else platform.processor(), "mlx": version("mlx")}


def read(name: str) -> dict[str, Any]:
    """`{"where": {...}, "items": {...}}` of that file."""
    return json.loads((DATA / f"{name}.json").read_text("utf-8"))


class Table:
    """`data/NAME.txt`: headings, below each its rows as they are typed, and indented what was recorded of a row.

    A heading without rows is a row itself, "". To add a row, write it and record.
    """

    def __init__(self, name: str) -> None:
        self._file = DATA / f"{name}.txt"
        self.rows = dict[tuple[str, str], list[str]]()
        heading = row = ""
        for line in self._file.read_text("utf-8").splitlines():
            if line.startswith("## "):
                heading, row = line[3:], ""
                self.rows[heading, row] = []
            elif line[:1].strip():
                row = line
                self.rows[heading, row] = []
                self.rows.pop((heading, ""), None)
            elif line or self.rows[heading, row]:
                self.rows[heading, row].append(line[2:])
        for lines in self.rows.values():
            while lines[-1:] == [""]:
                lines.pop()

    def check(self, heading: str, row: str, *lines: str) -> None:
        """Raises: AssertionError where they are not as recorded, but for spaces at their ends."""
        found = [line.rstrip() for line in lines]
        if RECORDING:
            self.rows[heading, row] = found
            self._file.write_text("\n".join(self._parts()), "utf-8")
        require_same(f"{self._file.stem} > {heading} > {row}", self.rows.get((heading, row), []), found)

    def _parts(self) -> Iterator[str]:
        """The text of each heading."""
        for heading in dict.fromkeys(heading for heading, _ in self.rows):
            rows = {row: lines for (where, row), lines in self.rows.items() if where == heading}
            told = [line for row, lines in rows.items() for line in (row, *(f"  {line}".rstrip() for line in lines))]
            yield "".join(f"{line}\n" for line in (f"## {heading}", *[""] * ("" not in rows), *told[("" in rows) :]))


def recorded_here(name: str) -> bool:
    """Whether equal bits may be expected: the file was recorded on this processor with this mlx."""
    return read(name)["where"] == here()


def write(name: str, items: dict[str, Any]) -> None:
    """One line for each item, sorted, so that a later recording's difference can be read."""
    lines = [f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
             for key, value in sorted(items.items())]  # fmt: skip
    text = f'{{"where":{json.dumps(here())},"items":{{\n' + ",\n".join(lines) + "\n}}\n"
    (DATA / f"{name}.json").write_text(text, "utf-8")


def agree(name: str, items: dict[str, Any], rounded: Callable[[str], bool] = lambda key: False) -> None:
    """`items` are as recorded; elsewhere those that hang on rounding are left out. Raises: AssertionError."""
    items = json.loads(json.dumps(items))
    if RECORDING:
        write(name, items)
    recorded = read(name)["items"]
    if not recorded_here(name):
        items, recorded = ({key: found[key] for key in found if not rounded(key)} for found in (items, recorded))
    require_same(name, recorded, items)


def require_same(name: str, recorded: Any, found: Any) -> None:
    """Raises: AssertionError with the first difference."""
    difference = first_difference(recorded, found)
    if difference is not None:
        path, was, now = difference
        raise AssertionError(f"golden {name}{path}\n  recorded: {was!r}\n  now:      {now!r}")


def first_difference(was: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """(path, recorded value, value now) of the first leaf that differs; of a long text, the line."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            found = first_difference(was.get(key, "absent"), now.get(key, "absent"), f"{path} > {key}")
            if found:
                return found
        return None
    if isinstance(was, str) and isinstance(now, str) and "\n" in was + now:
        was, now = was.split("\n"), now.split("\n")
    if isinstance(was, list) and isinstance(now, list):
        for place, (one, other) in enumerate(zip(was, now, strict=False)):
            found = first_difference(one, other, f"{path}[{place}]")
            if found:
                return found
        if len(was) == len(now):
            return None
        rest = min(len(was), len(now))
        return f"{path}[{rest}]", (was[rest:] or ["the end"])[0], (now[rest:] or ["the end"])[0]
    return None if type(was) is type(now) and was == now else (path, was, now)
