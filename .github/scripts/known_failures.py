"""known_failures.py RESULTS.xml LIST.txt: fails for a failure that is not listed, and for a listed one that is none.

A line of the list is `tests.engine.test_decode::test_name # the reason`; a name without a reason fails, too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def failures(results: str) -> set[str]:
    """The tests of a junit file that failed, as `tests.engine.test_decode::test_name`."""
    cases = ElementTree.parse(results).iter("testcase")
    failed = (case for case in cases if case.find("failure") is not None or case.find("error") is not None)
    return {f"{case.get('classname')}::{case.get('name')}" for case in failed}


def listed(path: str) -> dict[str, str]:
    """The names in the list with their reasons; a list that is not there is empty."""
    lines = Path(path).read_text("utf-8").splitlines() if Path(path).is_file() else []
    parts = (line.strip().partition(" #") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name.strip(): reason.strip() for name, _, reason in parts}


def main(results: str, path: str) -> str | None:
    """What is wrong, or None."""
    failed, known = failures(results), listed(path)
    if bare := sorted(name for name, reason in known.items() if not reason):
        return f"error: {path} gives no reason for {bare[0]}\nhint: write {bare[0]} # why it fails"
    new, gone = sorted(failed - known.keys()), sorted(known.keys() - failed)
    for name in new:
        print(f"failed, and is not in {path}: {name}")
    for name in gone:
        print(f"no longer fails; take it out of {path}: {name}")
    return f"error: {len(new)} new failures, {len(gone)} to take out\nhint: see above" if new or gone else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
