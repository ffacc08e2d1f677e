"""Realistic faults (`faults.txt`), each with the test that must find it. By hand: `python tests/faults.py [NAME …]`.

A copy of the repository gets one fault at a time; its finder must fail there, and pass without it. A finder that does
not end is one that does not find: a fault may make a loop endless, and its test must bound it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 120.0
TIERS = {"default": "not slow and not full and not real and not metal", "slow": "slow"}
LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", "venv", "__pycache__", ".*_cache", "build", "dist")


class Fault(NamedTuple):
    """`old` occurs once in `file` of specdec_cli, and becomes `new`; `finder` names an item of `tier`."""

    name: str
    file: str
    old: str
    new: str
    finder: str
    tier: str = "default"


def read_faults() -> Iterator[Fault]:
    """`faults.txt`: of each fault its name, its file, the old lines after a -, the new after a +, finder and tier."""
    for part in Path(__file__).with_suffix(".txt").read_text("utf-8").strip().split("\n\n"):
        if not part.startswith("#"):
            name, file, *changes, finder = part.splitlines()
            old, new = ("\n".join(line[2:] for line in changes if line[0] == sign) for sign in "-+")
            yield Fault(name, file.strip(), old, new, *finder.split())


FAULTS = tuple(read_faults())


def outcome(folder: Path, fault: Fault) -> str:
    """What pytest says of its finder in the copy: passed, failed, or why it says nothing."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider", "-m", TIERS[fault.tier]]
    command.append(f"tests/{fault.finder}")
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    log = folder / "finder.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code in (0, 1):
        return "failed" if code else "passed"
    last = log.read_text().strip().splitlines()[-1:]
    return f"pytest {code}: {' '.join(last)[:90]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults whose name contains it; all without")
    wanted = parser.parse_args().names
    faults = tuple(fault for fault in FAULTS if not wanted or any(name in fault.name for name in wanted))
    rows: list[tuple[str, str, float, str]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "repository"
        shutil.copytree(ROOT, folder, ignore=LEFT_BEHIND)
        sound: dict[str, str] = {}
        for fault in faults:
            path, began = folder / "specdec_cli" / fault.file, time.monotonic()
            text = path.read_text(encoding="utf-8")
            assert text.count(fault.old) == 1, fault
            if fault.finder not in sound:
                sound[fault.finder] = outcome(folder, fault)
            path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
            found = outcome(folder, fault)
            path.write_text(text, encoding="utf-8")
            if sound[fault.finder] != "passed":
                found = f"without it: {sound[fault.finder]}"
            verdict = "found" if found == "failed" else "not found"
            rows.append((fault.name, verdict, time.monotonic() - began, "" if verdict == "found" else found))
            print(f"{verdict:9}  {fault.name}  {rows[-1][3]}", flush=True)
    print(f"\n{'fault':60} {'verdict':9} {'s':>5}  why not")
    for name, verdict, seconds, why in rows:
        print(f"{name:60} {verdict:9} {seconds:5.0f}  {why}")
    missed = sum(verdict != "found" for _, verdict, _, _ in rows)
    print(f"{len(rows) - missed} of {len(rows)} faults found")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
