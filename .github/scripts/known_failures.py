"""known_failures.py RESULTS.xml LIST.txt: fails for a failure that is not listed, and for a listed one that is none.

So the list can only shrink. The word `unknown` in place of a list lets the first run pass, and prints what to write.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def outcomes(results: str) -> tuple[set[str], set[str]]:
    """(tests that failed, all tests) of a junit file, as `tests.engine.test_decode::test_name`."""
    failed, every = set(), set()
    for case in ElementTree.parse(results).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        every.add(name)
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
    return failed, every


def listed(path: str) -> set[str]:
    """The names in the list; a list that is not there is empty."""
    lines = Path(path).read_text("utf-8").splitlines() if Path(path).is_file() else []
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def main(results: str, path: str) -> str | None:
    """What is wrong, or None."""
    (failed, every), known = outcomes(results), listed(path)
    if known == {"unknown"}:
        print(f"{len(failed)} of {len(every)} tests failed. Write them into {path} in place of 'unknown':")
        print("\n".join(sorted(failed)))
        return None
    new, gone = sorted(failed - known), sorted(known - failed)
    for name in new:
        print(f"failed, and is not in {path}: {name}")
    for name in gone:
        print(f"no longer fails; take it out of {path}: {name}")
    return f"error: {len(new)} new failures, {len(gone)} to take out\nhint: see above" if new or gone else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
